// Attention of rows that each go on a sequence of their own, by what the cache keeps: reading that is all
// that takes time. A cluster of thread blocks computes one row's heads that share a kv head, each block with
// a part of the keys, each warp of it with some of those; each keeps a running softmax, and what they found
// is joined in the end, over the lanes, the warps and the blocks. So the launch depends on shapes alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "kernels/cuda/bf16_vector.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kParts = 8;  // blocks of a cluster
constexpr float kLog2E = 1.4426950408889634f;

struct DecodeProblem {
  const Bf16* qkv;
  const std::int32_t* slots;
  const std::int32_t* positions;
  const std::int32_t* ends;
  const Bf16* cache;
  Bf16* out;
  int capacity;  // positions of a slot
  int num_heads;
  int num_kv_heads;
  int group;    // query heads of a kv head
  int window;   // 0: none
  float scale;  // times log2 e: weights are powers of two
};

/// kLanes lanes hold a key, eight elements each, so that a warp's load brings kAtOnce keys. kHeads query
/// heads are computed together; so many loads of keys, and of values, are under way at once.
template <int head_dim, int heads>
struct Shares {
  static constexpr int kHeadDim = head_dim;
  static constexpr int kHeads = heads;
  static constexpr int kLanes = head_dim / kVectorSize;
  static constexpr int kAtOnce = kWarp / kLanes;
  static constexpr int kLoads = heads > 2 ? 4 : 8;
  static constexpr int kBatch = kLoads * kAtOnce;  // keys of a warp at once
};

/// What a thread found: of each head, its eight columns of the sum of values, and the softmax of its keys.
template <typename S>
struct Found {
  float sums[S::kHeads][kVectorSize] = {};
  float max[S::kHeads];
  float weights[S::kHeads] = {};

  __device__ Found() {
#pragma unroll
    for (float& value : max)
      value = -INFINITY;
  }
};

/// By what sums relative to one maximum must be multiplied to be relative to another, not less.
__device__ __forceinline__ float change(float from, float to) {
  return to == -INFINITY ? 0.0f : exp2f(from - to);
}

/// Which keys of the cache a block takes: `count`, from place `first` of the slot on and round its end.
struct Part {
  const Bf16* slot;
  int first;
  int count;
  int capacity;

  __device__ __forceinline__ std::int64_t place(int key) const {
    const int at = first + key;
    return at < capacity ? at : at - capacity;
  }
};

/// row_width: of the cache.
__device__ __forceinline__ Part find_part(const DecodeProblem& problem, int row, int rank,
                                          std::int64_t row_width) {
  const std::int64_t slot = problem.slots[row];
  Part part{problem.cache, 0, 0, problem.capacity};
  if (slot < 0) return part;
  const int begin = problem.window > 0 ? max(0, problem.positions[row] - problem.window + 1) : 0;
  const int num_keys = problem.ends[row] - begin;
  const int share = (num_keys + kParts - 1) / kParts;
  part.slot += slot * problem.capacity * row_width;
  part.first = (begin + rank * share) % part.capacity;
  part.count = max(0, min(share, num_keys - rank * share));
  return part;
}

/// Adds a batch of keys and values to what a thread has found.
template <typename S>
__device__ __forceinline__ void add_batch(const float (&queries)[S::kHeads][kVectorSize],
                                          const uint4 (&keys)[S::kLoads], const uint4 (&values)[S::kLoads],
                                          int first_key, int num_keys, Found<S>& found) {
  float scores[S::kHeads][S::kLoads];
#pragma unroll
  for (int i = 0; i < S::kLoads; ++i) {
    float key[kVectorSize];
    unpack(keys[i], key);
#pragma unroll
    for (int head = 0; head < S::kHeads; ++head) {
      float score = 0;
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        score += queries[head][j] * key[j];
#pragma unroll
      for (int distance = S::kLanes / 2; distance > 0; distance /= 2)
        score += __shfl_xor_sync(~0u, score, distance);
      scores[head][i] = first_key + i * S::kAtOnce < num_keys ? score : -INFINITY;
    }
  }
#pragma unroll
  for (int head = 0; head < S::kHeads; ++head) {
    float highest = found.max[head];
#pragma unroll
    for (const float score : scores[head])
      highest = fmaxf(highest, score);
    const float keep = change(found.max[head], highest);
    found.max[head] = highest;
    found.weights[head] *= keep;
#pragma unroll
    for (float& sum : found.sums[head])
      sum *= keep;
#pragma unroll
    for (float& score : scores[head]) {
      const float weight = change(score, highest);
      found.weights[head] += weight;
      score = rounded(weight);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kLoads; ++i) {
    float value[kVectorSize];
    unpack(values[i], value);
#pragma unroll
    for (int head = 0; head < S::kHeads; ++head) {
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        found.sums[head][j] += scores[head][i] * value[j];
    }
  }
}

/// What the lanes that hold different keys of the same columns found becomes one, in all of them.
template <typename S>
__device__ __forceinline__ void join_lanes(Found<S>& found) {
#pragma unroll
  for (int distance = S::kLanes; distance < kWarp; distance *= 2) {
#pragma unroll
    for (int head = 0; head < S::kHeads; ++head) {
      const float other = __shfl_xor_sync(~0u, found.max[head], distance);
      const float highest = fmaxf(found.max[head], other);
      const float keep = change(found.max[head], highest);
      found.max[head] = highest;
      found.weights[head] *= keep;
      found.weights[head] += __shfl_xor_sync(~0u, found.weights[head], distance);
#pragma unroll
      for (float& sum : found.sums[head]) {
        sum *= keep;
        sum += __shfl_xor_sync(~0u, sum, distance);
      }
    }
  }
}

/// What all warps found, then what all blocks did. softmax: x the maximum, y the sum of weights.
template <typename S>
struct Joined {
  float sums[kWarps][S::kHeads][S::kHeadDim];
  float2 softmax[kWarps][S::kHeads];
  alignas(16) float block_sums[S::kHeads][S::kHeadDim];
  alignas(16) float4 block_softmax[S::kHeads];
};

/// Of the warps of this block.
template <typename S>
__device__ __forceinline__ void join_warps(const Found<S>& found, Joined<S>& joined) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane < S::kLanes) {
#pragma unroll
    for (int head = 0; head < S::kHeads; ++head) {
      float* to = joined.sums[warp][head] + lane * kVectorSize;
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        to[j] = found.sums[head][j];
      if (lane == 0) joined.softmax[warp][head] = {found.max[head], found.weights[head]};
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < S::kHeads * S::kHeadDim; i += kThreads) {
    const int head = i / S::kHeadDim, column = i % S::kHeadDim;
    float highest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      highest = fmaxf(highest, joined.softmax[w][head].x);
    float sum = 0, weights = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float keep = change(joined.softmax[w][head].x, highest);
      weights += joined.softmax[w][head].y * keep;
      sum += joined.sums[w][head][column] * keep;
    }
    joined.block_sums[head][column] = sum;
    if (column == 0) joined.block_softmax[head] = {highest, weights, 0, 0};
  }
}

/// Of the blocks of the cluster, each of which writes some columns; four a thread. `to`: head by head.
template <typename S>
__device__ __forceinline__ void join_blocks(const Joined<S>& joined, int rank, bool is_row, Bf16* to) {
  hopper::cluster_sync();
  constexpr int kQuads = S::kHeads * S::kHeadDim / 4;
  static_assert(kQuads % kParts == 0 && kQuads / kParts <= kThreads);
  if (threadIdx.x < kQuads / kParts) {
    const int i = (rank * (kQuads / kParts) + static_cast<int>(threadIdx.x)) * 4;
    const int head = i / S::kHeadDim, column = i % S::kHeadDim;
    const hopper::SharedAddress softmax = hopper::shared_address(&joined.block_softmax[head]);
    const hopper::SharedAddress sums = hopper::shared_address(&joined.block_sums[head][column]);
    float4 softmaxes[kParts], parts[kParts];
    float highest = -INFINITY;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      softmaxes[part] = hopper::load_from_cluster(hopper::in_block(softmax, part));
      parts[part] = hopper::load_from_cluster(hopper::in_block(sums, part));
      highest = fmaxf(highest, softmaxes[part].x);
    }
    float sum[4] = {};
    float weights = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float keep = change(softmaxes[part].x, highest);
      weights += softmaxes[part].y * keep;
      sum[0] += parts[part].x * keep;
      sum[1] += parts[part].y * keep;
      sum[2] += parts[part].z * keep;
      sum[3] += parts[part].w * keep;
    }
#pragma unroll
    for (float& value : sum)
      value = is_row ? value / weights : 0.0f;
    store(sum, to + i);
  }
  hopper::cluster_sync();  // the others have read what they take from here
}

/// Block (part, heads, row) of a cluster of kParts.
template <typename S>
__global__ __launch_bounds__(kThreads) void attend_cached_row(const DecodeProblem problem) {
  __shared__ Joined<S> joined;
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int rank = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.z);
  const int first_head = static_cast<int>(blockIdx.y) * S::kHeads;
  const int kv_head = first_head / problem.group;
  const std::int64_t kv_width = std::int64_t{problem.num_kv_heads} * S::kHeadDim;
  // No kernel writes what rows see, the host copies it.
  const Part part = find_part(problem, row, rank, 2 * kv_width);
  const Bf16* keys = part.slot + kv_head * S::kHeadDim + lane % S::kLanes * kVectorSize;
  const int lane_key = lane / S::kLanes;

  // Nearly all of it was written long ago: it can be on its way to L2 while the kernel in front still runs.
  for (int key = warp * S::kAtOnce + lane_key; key < part.count; key += kWarps * S::kAtOnce) {
    if (lane % 8 != 0) continue;  // a line of 128 bytes
    const Bf16* place = keys + part.place(key) * 2 * kv_width;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place + kv_width));
  }
  wait_for_previous();

  float queries[S::kHeads][kVectorSize];
  const Bf16* query =
      problem.qkv + (std::int64_t{row} * problem.num_kv_heads + kv_head) * (problem.group + 2) * S::kHeadDim +
      (first_head - kv_head * problem.group) * S::kHeadDim + lane % S::kLanes * kVectorSize;
#pragma unroll
  for (int head = 0; head < S::kHeads; ++head) {
    unpack(load_vector(query + head * S::kHeadDim, 0), queries[head]);
#pragma unroll
    for (float& value : queries[head])
      value *= problem.scale;
  }
  Found<S> found;
#pragma unroll 1
  for (int first = warp * S::kBatch; first < part.count; first += kWarps * S::kBatch) {
    uint4 key_loads[S::kLoads], value_loads[S::kLoads];
#pragma unroll
    for (int i = 0; i < S::kLoads; ++i) {
      // Past the end comes the last key once more, with a weight of zero.
      const int key = min(first + i * S::kAtOnce + lane_key, part.count - 1);
      const Bf16* place = keys + part.place(key) * 2 * kv_width;
      key_loads[i] = load_vector(place, 0);
      value_loads[i] = load_vector(place + kv_width, 0);
    }
    add_batch<S>(queries, key_loads, value_loads, first + lane_key, part.count, found);
  }
  join_lanes<S>(found);
  join_warps<S>(found, joined);
  join_blocks<S>(joined, rank, problem.slots[row] >= 0,
                 problem.out + (std::int64_t{row} * problem.num_heads + first_head) * S::kHeadDim);
}

template <int kHeadDim, int kHeads>
void start(const DecodeProblem& problem, std::int64_t num_rows, cudaStream_t stream) {
  launch("launch attention of single rows", attend_cached_row<Shares<kHeadDim, kHeads>>,
         {.blocks = dim3(kParts, static_cast<unsigned>(problem.num_heads / kHeads),
                         static_cast<unsigned>(num_rows)),
          .threads = dim3(kThreads),
          .cluster = kParts},
         stream, problem);
}

template <int kHeadDim>
void start_by_group(const DecodeProblem& problem, std::int64_t num_rows, cudaStream_t stream) {
  if (problem.group % 4 == 0) return start<kHeadDim, 4>(problem, num_rows, stream);
  if (problem.group % 2 == 0) return start<kHeadDim, 2>(problem, num_rows, stream);
  start<kHeadDim, 1>(problem, num_rows, stream);
}

}  // namespace

void attention_decode(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                      const AttentionParams& params, TensorView out, cudaStream_t stream) {
  const HeadLayout& heads = params.heads;
  DecodeProblem problem{};
  problem.qkv = qkv.as<Bf16>();
  problem.slots = rows.slots.as<std::int32_t>();
  problem.positions = rows.positions.as<std::int32_t>();
  problem.ends = rows.ends.as<std::int32_t>();
  problem.cache = cache.as<Bf16>();
  problem.out = out.as<Bf16>();
  problem.capacity = static_cast<int>(cache.shape[1]);
  problem.num_heads = static_cast<int>(heads.num_heads);
  problem.num_kv_heads = static_cast<int>(heads.num_kv_heads);
  problem.group = static_cast<int>(heads.queries_per_kv_head());
  problem.window = static_cast<int>(std::min<std::int64_t>(params.window, std::numeric_limits<int>::max()));
  problem.scale = params.scale * kLog2E;
  switch (heads.head_dim) {
    case 64:
      return start_by_group<64>(problem, qkv.shape[0], stream);
    case 128:
      return start_by_group<128>(problem, qkv.shape[0], stream);
    case 256:
      return start_by_group<256>(problem, qkv.shape[0], stream);
    default:
      throw OpError("attention_decode: head_dim is " + std::to_string(heads.head_dim) +
                    ", must be 64, 128 or 256");
  }
}

}  // namespace gemmad::cuda
