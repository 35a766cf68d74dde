#include <cblas.h>

#include <string_view>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace gemmad::cpu {
namespace {

void sgemm(CBLAS_TRANSPOSE transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a,
           ConstMatrix b, bool accumulate, Matrix c) {
  const auto narrow = [](std::int64_t value) { return static_cast<blasint>(value); };
  if (m == 0 || n == 0) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b, narrow(m), narrow(n), narrow(k), 1.0f, a.data,
              narrow(a.stride), b.data, narrow(b.stride), accumulate ? 1.0f : 0.0f, c.data, narrow(c.stride));
}

}  // namespace

void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c) {
  sgemm(CblasTrans, m, n, k, a, b, accumulate, c);
}

void gemm_nn(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c) {
  sgemm(CblasNoTrans, m, n, k, a, b, accumulate, c);
}

void prepare_gemm() {
  // The pool here splits the work. OpenBLAS's own threads would spin beside it between products.
  openblas_set_num_threads(1);
}

void warm_up_gemm() {
  constexpr std::int64_t kSide = 64;
  const std::vector<float> ones(kSide * kSide, 1.0f);
  std::vector<float> product(kSide * kSide);
  gemm_nt(kSide, kSide, kSide, {ones.data(), kSide}, {ones.data(), kSide}, false, {product.data(), kSide});
}

std::string gemm_description() {
  // The configuration begins with "OpenBLAS 0.3.21 ...".
  const std::string_view config = openblas_get_config();
  const std::size_t name_end = config.find(' ', config.find(' ') + 1);
  return std::string(config.substr(0, name_end)) + " (" + openblas_get_corename() + ")";
}

}  // namespace gemmad::cpu
