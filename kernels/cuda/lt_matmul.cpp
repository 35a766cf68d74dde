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

cublasLtEpilogue_t epilogue_of(const ProductEnd& end) {
  if (end.gelu) return end.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return end.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

CublasError::CublasError(cublasStatus_t status, const std::string& what_failed)
    : DeviceError(what_failed + ": " + cublasLtGetStatusString(status)) {}

ProductShape product_shape(const ProductOperands& operands) {
  const auto& [x, w, y, bias, gelu, add] = operands;
  const auto address = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const std::int64_t inputs = x.shape[1];
  const auto y_element = static_cast<std::int64_t>(size_bytes(y.dtype));
  return {x.shape[0],
          inputs,
          w.rows,
          w.row_stride,
          y.row_stride,
          common_alignment(address(x.data), address(w.data), address(y.data), address(bias.data),
                           address(add.data), 2 * inputs, 2 * w.row_stride, y_element * y.row_stride),
          {y.dtype == DType::kF32, bias.data != nullptr, gelu, add.data != nullptr}};
}

LtMatmul::Layout LtMatmul::make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                       std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

template <typename Value>
void LtMatmul::describe(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
  check_cublas(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

// The library counts by columns: its first factor is W, transposed, its second x^T, its product y^T.
LtMatmul::LtMatmul(cublasLtHandle_t handle, const ProductShape& shape)
    : handle_(handle),
      alignment_bytes_(shape.alignment_bytes),
      end_(shape.end),
      w_(make_layout(CUDA_R_16BF, shape.inputs, shape.outputs, shape.w_stride)),
      x_(make_layout(CUDA_R_16BF, shape.inputs, shape.rows, shape.inputs)),
      y_(make_layout(shape.end.f32 ? CUDA_R_32F : CUDA_R_16BF, shape.outputs, shape.rows, shape.y_stride)) {
  cublasLtMatmulDesc_t description = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  description_.reset(description);
  describe(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(end_));
  // The library reads off the address how a bias is aligned when it looks for algorithms.
  if (end_.bias) describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<std::uintptr_t>(alignment_bytes_));
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

void LtMatmul::run(const Algorithm& algorithm, const ProductOperands& operands,
                   std::span<std::byte> workspace, cudaStream_t stream) const {
  const float one = 1;
  const float old_share = end_.add ? 1 : 0;
  const void* old = end_.add ? operands.add.data : operands.y.data;
  if (end_.bias) describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias.data);
  check_cublas(cublasLtMatmul(handle_, description_.get(), &one, operands.w.data, w_.get(), operands.x.data,
                              x_.get(), &old_share, old, y_.get(), operands.y.data, y_.get(), &algorithm,
                              workspace.data(), workspace.size(), stream),
               "cublasLtMatmul");
}

}  // namespace gemmad::cuda
