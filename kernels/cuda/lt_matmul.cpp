#include "kernels/cuda/lt_matmul.h"

#include <cstddef>

namespace gemmad::cuda {

namespace {

void check_cublas(cublasStatus_t status, const char* what_failed) {
  if (status != CUBLAS_STATUS_SUCCESS) throw CublasError(status, what_failed);
}

/// The largest power of two up to 16 that divides all of these.
template <typename... Values>
std::int64_t common_alignment(Values... values) {
  const std::int64_t bits = (static_cast<std::int64_t>(values) | ... | 16);
  return bits & -bits;
}

}  // namespace

CublasError::CublasError(cublasStatus_t status, const std::string& what_failed)
    : DeviceError(what_failed + ": " + cublasLtGetStatusString(status)) {}

ProductShape product_shape(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y) {
  const auto address = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const std::int64_t inputs = x.shape[1];
  return {x.shape[0],
          inputs,
          w.rows,
          w.row_stride,
          y.row_stride,
          common_alignment(address(x.data), address(w.data), address(y.data), 2 * inputs, 2 * w.row_stride,
                           2 * y.row_stride)};
}

LtMatmul::Layout LtMatmul::make_layout(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

// The library counts by columns: its first factor is W, transposed, its second x^T, its product y^T.
LtMatmul::LtMatmul(cublasLtHandle_t handle, const ProductShape& shape)
    : handle_(handle),
      alignment_bytes_(shape.alignment_bytes),
      w_(make_layout(shape.inputs, shape.outputs, shape.w_stride)),
      x_(make_layout(shape.inputs, shape.rows, shape.inputs)),
      y_(make_layout(shape.outputs, shape.rows, shape.y_stride)) {
  cublasLtMatmulDesc_t description = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  description_.reset(description);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_cublas(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof transposed),
               "cublasLtMatmulDescSetAttribute");
}

std::vector<LtMatmul::Algorithm> LtMatmul::candidates(int most, std::size_t workspace_bytes) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy> preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto alignment = static_cast<std::uint32_t>(alignment_bytes_);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  // Parts of a sum stay fp32, and are added in an order of their own: not by atomics.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, description_.get(), w_.get(), x_.get(), y_.get(), y_.get(),
                                     made, most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool LtMatmul::accepts(const Algorithm& algorithm, std::size_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, description_.get(), w_.get(), x_.get(),
                                                        y_.get(), y_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes;
}

void LtMatmul::run(const Algorithm& algorithm, const void* x, const void* w, void* y, const Buffer& workspace,
                   cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  check_cublas(cublasLtMatmul(handle_, description_.get(), &one, w, w_.get(), x, x_.get(), &zero, y, y_.get(),
                              y, y_.get(), &algorithm, workspace.data(), workspace.size_bytes(), stream),
               "cublasLtMatmul");
}

}  // namespace gemmad::cuda
