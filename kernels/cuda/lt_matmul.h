// The one wrapper of cuBLASLt: y = x W^T in bf16 with fp32 sums.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/memory.h"
#include "kernels/base/tensor.h"
#include "kernels/cuda/check.h"

namespace gemmad::cuda {

/// A cuBLASLt call failed. what() names it and the library's reason.
class CublasError : public DeviceError {
 public:
  CublasError(cublasStatus_t status, const std::string& what_failed);
};

/// What a product's plan depends on. Elements, but for alignment_bytes: what all addresses and row strides
/// are multiples of, 16 at most.
struct ProductShape {
  std::int64_t rows = 0;     // N
  std::int64_t inputs = 0;   // I
  std::int64_t outputs = 0;  // O
  std::int64_t w_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t alignment_bytes = 16;

  auto operator<=>(const ProductShape&) const = default;
};

ProductShape product_shape(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y);

/// One shape's product, described to the library once. Algorithms are its; the same one gives the same bytes.
class LtMatmul {
 public:
  using Algorithm = cublasLtMatmulAlgo_t;

  LtMatmul(cublasLtHandle_t handle, const ProductShape& shape);

  /// Up to `most`, those that the library thinks fastest first, that need no more than `workspace_bytes`.
  /// Empty when it has none.
  std::vector<Algorithm> candidates(int most, std::size_t workspace_bytes) const;
  /// Whether `algorithm`, from a file, can compute this.
  bool accepts(const Algorithm& algorithm, std::size_t workspace_bytes) const;
  /// Throws CublasError.
  void run(const Algorithm& algorithm, const void* x, const void* w, void* y, const Buffer& workspace,
           cudaStream_t stream) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDescOpaque_t* description) const { cublasLtMatmulDescDestroy(description); }
    void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { cublasLtMatrixLayoutDestroy(layout); }
    void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const {
      cublasLtMatmulPreferenceDestroy(preference);
    }
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
  static Layout make_layout(std::int64_t rows, std::int64_t columns, std::int64_t stride);

  cublasLtHandle_t handle_;
  std::int64_t alignment_bytes_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy> description_;
  Layout w_;
  Layout x_;
  Layout y_;
};

}  // namespace gemmad::cuda
