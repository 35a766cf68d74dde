// How attention's kernel (attention_kernel.h) is started. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention_kernel.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map_encoder.h"
#include "kernels/ops.h"

namespace gemmad::cuda::warpgroup {

constexpr float kLog2E = 1.4426950408889634f;
// Tiles of 128 lines halve the traffic of keys and values, which is what limits many tokens. From so many on
// they keep all multiprocessors (132, one thread block each) busy; from so many, if two share each. Below,
// twice as many tiles of 64 lines spread the work better.
constexpr std::int64_t kLeastWideTiles = 224;
constexpr std::int64_t kLeastSharedTiles = 56;

/// A map of a matrix of bf16 in three dimensions: 64 columns of a head, a head, a row. Zeros beyond.
inline CUtensorMap describe_boxes(ConstTensorView matrix, std::int64_t head_dim, int box_heads,
                                  int box_rows) {
  const auto size = static_cast<cuuint64_t>(head_dim), width = static_cast<cuuint64_t>(matrix.shape[1]);
  const cuuint64_t extents[] = {size, width / size, static_cast<cuuint64_t>(matrix.shape[0])};
  const cuuint64_t strides[] = {size * 2, width * 2};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(matrix.data), extents, strides, box,
      element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw CudaError(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

inline std::int64_t count_tiles(const Problem& problem, int lines) {
  const int rows = lines / problem.tile_heads;
  return (std::int64_t{problem.num_rows} + rows - 1) / rows * problem.parts;
}

/// As many heads of a group as a tile takes: all, most often.
inline int choose_tile_heads(int group) {
  int heads = std::min(group, 64);
  while (group % heads != 0)
    --heads;
  return heads;
}

/// All but what rows see.
inline Problem describe_problem(ConstTensorView qkv, const AttentionParams& params, TensorView out) {
  const HeadLayout& heads = params.heads;
  Problem problem{};
  problem.out = out.as<__nv_bfloat16>();
  problem.num_rows = static_cast<int>(qkv.shape[0]);
  problem.num_heads = static_cast<int>(heads.num_heads);
  problem.group = static_cast<int>(heads.queries_per_kv_head());
  problem.tile_heads = choose_tile_heads(problem.group);
  problem.parts = problem.num_heads / problem.tile_heads;
  problem.inverse = 65536 / static_cast<unsigned>(problem.tile_heads) + 1;
  problem.scale = params.scale * kLog2E;
  return problem;
}

/// Each tile is computed by `ranks` thread blocks, 1 or 2. `keys`: matrix in which keys and values are.
template <typename T>
void start(ConstTensorView qkv, ConstTensorView keys, Problem problem, unsigned ranks, cudaStream_t stream) {
  problem.ranks = static_cast<int>(ranks);
  problem.tile_rows = T::kLines / problem.tile_heads;
  // Per device; costs little next to a launch.
  check_cuda(cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes),
             "cudaFuncSetAttribute of attention");
  launch("launch attention", attend<T>,
         {.blocks = dim3(static_cast<unsigned>(count_tiles(problem, T::kLines)) * ranks),
          .threads = dim3(T::kThreads),
          .shared_bytes = T::kSharedBytes,
          .cluster = ranks},
         stream, describe_boxes(qkv, T::kHeadDim, problem.tile_heads, problem.tile_rows),
         describe_boxes(keys, T::kHeadDim, 1, T::kKeys), problem);
}

}  // namespace gemmad::cuda::warpgroup
