// Attention for head sizes that have no tiles (attention.cu): a warp for each row and head, which takes 32
// keys at a time, one a lane.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;                       // of a block
constexpr int kColumns = kMostHeadDim / kWarp;  // of a lane
constexpr float kLog2E = 1.4426950408889634f;

struct AnyProblem {
  const Bf16* qkv;
  const std::int32_t* begins;
  const std::int32_t* ends;  // null: a row sees up to itself
  Bf16* out;
  std::int64_t num_rows;
  int num_heads;
  int queries;  // of a kv head
  int head_dim;
  int window;   // 0: none
  float scale;  // times log2 e: weights are powers of two
};

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  return value;
}

__global__ __launch_bounds__(kWarps* kWarp) void attend_any(const AnyProblem problem) {
  __shared__ float queries[kWarps][kMostHeadDim];
  let_next_start();
  wait_for_previous();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + warp;
  if (index >= problem.num_rows * problem.num_heads) return;  // whole warps: none waits for another
  const int row = static_cast<int>(index / problem.num_heads);
  const int head = static_cast<int>(index % problem.num_heads);
  const int size = problem.head_dim;
  const int kv_head = head / problem.queries;
  const std::int64_t row_width =
      std::int64_t{problem.num_heads / problem.queries} * (problem.queries + 2) * size;
  const Bf16* group = problem.qkv + std::int64_t{kv_head} * (problem.queries + 2) * size;
  const Bf16* query = group + row * row_width + head % problem.queries * size;
  const Bf16* keys = group + problem.queries * size;
  const Bf16* values = keys + size;
  for (int i = lane; i < size; i += kWarp)
    queries[warp][i] = __bfloat162float(query[i]);
  __syncwarp();

  int first = problem.begins[row];
  if (problem.window > 0) first = max(first, row - problem.window + 1);
  const int end = problem.ends != nullptr ? problem.ends[row] : row + 1;
  float sums[kColumns] = {};
  float weight_sum = 0;
  float highest = -INFINITY;
  for (int block = first; block < end; block += kWarp) {
    const int count = min(kWarp, end - block);
    float score = -INFINITY;
    if (lane < count) {
      const Bf16* key = keys + (block + lane) * row_width;
      score = 0;
      for (int i = 0; i < size; ++i)
        score += queries[warp][i] * __bfloat162float(key[i]);
      score *= problem.scale;
    }
    const float higher = fmaxf(highest, warp_max(score));
    const float keep = exp2f(highest - higher);
    highest = higher;
    const float weight = exp2f(score - highest);
    weight_sum = weight_sum * keep + warp_sum(weight);
#pragma unroll
    for (float& sum : sums)
      sum *= keep;
    for (int key = 0; key < count; ++key) {
      const float share = __shfl_sync(~0u, rounded(weight), key);
      const Bf16* value = values + (block + key) * row_width;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int column = i * kWarp + lane;
        if (column < size) sums[i] += share * __bfloat162float(value[column]);
      }
    }
  }
  Bf16* const out = problem.out + index * size;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = i * kWarp + lane;
    if (column < size) out[column] = __float2bfloat16_rn(sums[i] / weight_sum);
  }
}

}  // namespace

void attention_any(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                   TensorView out, cudaStream_t stream) {
  const HeadLayout& heads = params.heads;
  if (heads.head_dim > kMostHeadDim) {
    throw OpError("attention: head_dim is " + std::to_string(heads.head_dim) + ", must be at most " +
                  std::to_string(kMostHeadDim) + ", or 512");
  }
  AnyProblem problem{};
  problem.qkv = qkv.as<Bf16>();
  problem.begins = spans.begins.as<std::int32_t>();
  problem.ends = spans.ends.as<std::int32_t>();
  problem.out = out.as<Bf16>();
  problem.num_rows = qkv.shape[0];
  problem.num_heads = static_cast<int>(heads.num_heads);
  problem.queries = static_cast<int>(heads.queries_per_kv_head());
  problem.head_dim = static_cast<int>(heads.head_dim);
  problem.window = static_cast<int>(std::min(params.window, problem.num_rows));  // no row sees more before it
  problem.scale = params.scale * kLog2E;
  const std::int64_t warps = problem.num_rows * heads.num_heads;
  if (warps == 0) return;
  launch("launch attention", attend_any,
         {dim3(static_cast<unsigned>((warps + kWarps - 1) / kWarps)), dim3(kWarps * kWarp)}, stream, problem);
}

}  // namespace gemmad::cuda
