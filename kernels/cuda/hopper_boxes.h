// What the kernels of hopper_gemm.cu have the tensor copy engine move, described to it. For that file only.
#pragma once

#include <array>

#include "kernels/base/tensor.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/hopper_gemm_output.h"
#include "kernels/cuda/tensor_map_encoder.h"

namespace gemmad::cuda::hopper_gemm_kernel {

/// A tensor of BF16 and the boxes of it that the copy engine moves, fastest dimension first.
template <int kRank>
struct Boxes {
  void* data;
  std::array<cuuint64_t, kRank> extents;
  std::array<cuuint64_t, kRank - 1> strides;  // of the second dimension and those that follow, in elements
  std::array<cuuint32_t, kRank> box;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

/// Describes them to the copy engine; zeros beyond the tensor.
template <int kRank>
CUtensorMap describe(const Boxes<kRank>& boxes) {
  std::array<cuuint64_t, kRank - 1> strides;
  for (std::size_t i = 0; i < strides.size(); ++i)
    strides[i] = boxes.strides[i] * 2;  // bytes
  std::array<cuuint32_t, kRank> element_strides;
  element_strides.fill(1);
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kRank, boxes.data, boxes.extents.data(), strides.data(),
      boxes.box.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, boxes.swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw CudaError(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

/// Boxes of `box_rows` rows by one step of K.
inline CUtensorMap describe_rows(ConstMatrixView matrix, int box_rows) {
  return describe<2>({const_cast<void*>(matrix.data),
                      {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)},
                      {static_cast<cuuint64_t>(matrix.row_stride)},
                      {kStep, static_cast<cuuint32_t>(box_rows)}});
}

/// The same, with 8 gates and their 8 ups in turn (hopper_geglu_kernel.h).
inline CUtensorMap describe_pairs(ConstMatrixView matrix, int box_rows) {
  constexpr int kGroup = 8;
  constexpr int kGates = kPairedRows / 2;
  const auto row = static_cast<cuuint64_t>(matrix.row_stride);
  const auto blocks = static_cast<cuuint64_t>(matrix.rows / kPairedRows);
  return describe<5>({const_cast<void*>(matrix.data),
                      {static_cast<cuuint64_t>(matrix.columns), kGroup, 2, kGates / kGroup, blocks},
                      {row, kGates * row, kGroup * row, kPairedRows * row},
                      {kStep, kGroup, 2, kGates / kGroup, static_cast<cuuint32_t>(box_rows / kPairedRows)}});
}

/// Boxes of `features` by `tokens`, as swizzle_out() lays them out.
inline CUtensorMap describe_out(MatrixView y, int features, int tokens) {
  return describe<2>({y.data,
                      {static_cast<cuuint64_t>(y.columns), static_cast<cuuint64_t>(y.rows)},
                      {static_cast<cuuint64_t>(y.row_stride)},
                      {static_cast<cuuint32_t>(features), static_cast<cuuint32_t>(tokens)},
                      features == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B});
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
