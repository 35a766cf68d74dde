// Attention for head sizes that have no tiles (attention.cu, attention_cached.cu): a warp for each row and
// head, which takes 32 keys at a time, one a lane.
#include <algorithm>
#include <cmath>
#include <limits>
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
  const Bf16* cache;              // null: keys are those of qkv's rows
  const std::int32_t* begins;     // without a cache
  const std::int32_t* slots;      // with one; below 0: a row that sees nothing
  const std::int32_t* positions;  // with one
  const std::int32_t* ends;       // null, without a cache: a row sees up to itself
  Bf16* out;
  std::int64_t num_rows;
  std::int64_t capacity;  // positions of a slot
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

/// The keys that a row sees, by their numbers, and where they are.
struct Keys {
  const Bf16* first;          // number 0
  std::int64_t row_width;     // from one key to the next
  std::int64_t value_offset;  // from a key to its value
  int capacity;               // so many, then the next is in the first's place again
  int begin, end;

  __device__ __forceinline__ const Bf16* key(int number) const {
    return first + number % capacity * row_width;
  }
};

__device__ __forceinline__ Keys find_packed_keys(const AnyProblem& problem, int row, int kv_head) {
  const int size = problem.head_dim;
  Keys keys{};
  keys.row_width = std::int64_t{problem.num_heads / problem.queries} * (problem.queries + 2) * size;
  keys.first =
      problem.qkv + (std::int64_t{kv_head} * (problem.queries + 2) + problem.queries) * std::int64_t{size};
  keys.value_offset = size;
  keys.capacity = static_cast<int>(problem.num_rows);
  keys.begin = problem.begins[row];
  if (problem.window > 0) keys.begin = max(keys.begin, row - problem.window + 1);
  keys.end = problem.ends != nullptr ? problem.ends[row] : row + 1;
  return keys;
}

__device__ __forceinline__ Keys find_cached_keys(const AnyProblem& problem, int row, int kv_head) {
  const std::int64_t kv_width = std::int64_t{problem.num_heads / problem.queries} * problem.head_dim;
  const std::int64_t slot = problem.slots[row];
  Keys keys{};
  if (slot < 0) return keys;
  keys.row_width = 2 * kv_width;
  keys.first = problem.cache + slot * problem.capacity * keys.row_width + kv_head * problem.head_dim;
  keys.value_offset = kv_width;
  keys.capacity = static_cast<int>(problem.capacity);
  if (problem.window > 0) keys.begin = max(0, problem.positions[row] - problem.window + 1);
  keys.end = problem.ends[row];
  return keys;
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
  const Bf16* query = problem.qkv + row * row_width +
                      (std::int64_t{kv_head} * (problem.queries + 2) + head % problem.queries) * size;
  for (int i = lane; i < size; i += kWarp)
    queries[warp][i] = __bfloat162float(query[i]);
  __syncwarp();

  const Keys keys = problem.cache != nullptr ? find_cached_keys(problem, row, kv_head)
                                             : find_packed_keys(problem, row, kv_head);
  float sums[kColumns] = {};
  float weight_sum = 0;
  float highest = -INFINITY;
  for (int block = keys.begin; block < keys.end; block += kWarp) {
    const int count = min(kWarp, keys.end - block);
    float score = -INFINITY;
    if (lane < count) {
      const Bf16* key = keys.key(block + lane);
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
      const Bf16* value = keys.key(block + key) + keys.value_offset;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int column = i * kWarp + lane;
        if (column < size) sums[i] += share * __bfloat162float(value[column]);
      }
    }
  }
  Bf16* const out = problem.out + index * size;
  const bool sees = keys.begin < keys.end;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = i * kWarp + lane;
    if (column < size) out[column] = __float2bfloat16_rn(sees ? sums[i] / weight_sum : 0.0f);
  }
}

AnyProblem describe(ConstTensorView qkv, const AttentionParams& params, TensorView out) {
  const HeadLayout& heads = params.heads;
  if (heads.head_dim > kMostHeadDim) {
    throw OpError("attention: head_dim is " + std::to_string(heads.head_dim) + ", must be at most " +
                  std::to_string(kMostHeadDim) + ", or 512 without a cache");
  }
  AnyProblem problem{};
  problem.qkv = qkv.as<Bf16>();
  problem.out = out.as<Bf16>();
  problem.num_rows = qkv.shape[0];
  problem.num_heads = static_cast<int>(heads.num_heads);
  problem.queries = static_cast<int>(heads.queries_per_kv_head());
  problem.head_dim = static_cast<int>(heads.head_dim);
  problem.window = static_cast<int>(std::min<std::int64_t>(params.window, std::numeric_limits<int>::max()));
  problem.scale = params.scale * kLog2E;
  return problem;
}

void start(const AnyProblem& problem, cudaStream_t stream) {
  const std::int64_t warps = problem.num_rows * problem.num_heads;
  if (warps == 0) return;
  launch("launch attention", attend_any,
         {dim3(static_cast<unsigned>((warps + kWarps - 1) / kWarps)), dim3(kWarps * kWarp)}, stream, problem);
}

}  // namespace

void attention_any(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                   TensorView out, cudaStream_t stream) {
  AnyProblem problem = describe(qkv, params, out);
  problem.begins = spans.begins.as<std::int32_t>();
  problem.ends = spans.ends.as<std::int32_t>();
  start(problem, stream);
}

void attention_cached_any(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                          const AttentionParams& params, TensorView out, cudaStream_t stream) {
  AnyProblem problem = describe(qkv, params, out);
  problem.cache = cache.as<Bf16>();
  problem.slots = rows.slots.as<std::int32_t>();
  problem.positions = rows.positions.as<std::int32_t>();
  problem.ends = rows.ends.as<std::int32_t>();
  problem.capacity = cache.shape[1];
  start(problem, stream);
}

}  // namespace gemmad::cuda
