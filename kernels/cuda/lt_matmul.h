// The one wrapper of cuBLASLt: y = x W^T of bf16 with fp32 sums, and what a product may end with.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/tensor.h"
#include "kernels/cuda/check.h"

namespace gemmad::cuda {

/// A cuBLASLt call failed. what() names it and the library's reason.
class CublasError : public DeviceError {
 public:
  CublasError(cublasStatus_t status, const std::string& what_failed);
};

/// y = gelu(x W^T + bias + add), without what has no data.
struct ProductOperands {
  ConstTensorView x;          // [N, I] BF16
  ConstMatrixView w;          // [O, I] BF16
  MatrixView y;               // [N, O] BF16 or F32
  ConstTensorView bias = {};  // [O] BF16; only where y is
  bool gelu = false;          // gelu_tanh
  ConstTensorView add = {};   // [N, O], of y's type, as far from row to row; may be y
};

/// What there is of a product's end.
struct ProductEnd {
  bool f32 = false;  // y is F32
  bool bias = false;
  bool gelu = false;
  bool add = false;

  auto operator<=>(const ProductEnd&) const = default;
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
  ProductEnd end = {};

  auto operator<=>(const ProductShape&) const = default;
};

ProductShape product_shape(const ProductOperands& operands);

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
  /// `operands` have this shape. Throws CublasError.
  void run(const Algorithm& algorithm, const ProductOperands& operands, std::span<std::byte> workspace,
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
  static Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                            std::int64_t stride);
  template <typename Value>
  void describe(cublasLtMatmulDescAttributes_t attribute, const Value& value) const;

  cublasLtHandle_t handle_;
  std::int64_t alignment_bytes_;
  ProductEnd end_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy> description_;
  Layout w_;
  Layout x_;
  Layout y_;
};

}  // namespace gemmad::cuda
