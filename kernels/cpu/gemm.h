// The one place that multiplies matrices. Row-major throughout; strides are in elements from one row to the
// next. Implemented by gemm_openblas.cpp, or by gemm_plain.cpp where the build found no OpenBLAS.
#pragma once

#include <cstdint>
#include <string>

namespace gemmad::cpu {

struct ConstMatrix {
  const float* data;
  std::int64_t stride;
};

struct Matrix {
  float* data;
  std::int64_t stride;
};

/// C = A B^T, or C += A B^T. A [m, k], B [n, k], C [m, n]; C overlaps neither. On the calling thread alone;
/// may be called by several at once. fp32 sums; the order of a sum may depend on m, n and k, on nothing else.
void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c);

/// C = A B, or C += A B. A [m, k], B [k, n], C [m, n]. Otherwise as gemm_nt.
void gemm_nn(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c);

/// Must be called once before the first product of a process. Not thread-safe.
void prepare_gemm();

/// A small product, so that the library takes its working memory now and not in the middle of a request: lack
/// of it is not an error to OpenBLAS, which tries again for ever. May be called by several threads at once.
void warm_up_gemm();

/// "OpenBLAS 0.3.21 (Zen)".
std::string gemm_description();

}  // namespace gemmad::cpu
