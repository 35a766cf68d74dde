// What the blocks of hopper_gemm_kernel.h compute and where their part lies, and how they write it: sums are
// rounded, turned (the weights' rows are the product's columns) in shared memory, and stored 16 bytes at a
// time.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/hopper_plan.h"

namespace gemmad::cuda::hopper_gemm_kernel {

using hopper::SharedAddress;

constexpr int kGroupRows = 64;  // of the weights, per matrix instruction
constexpr int kStep = kHopperStep;  // columns of K per stage: 128 bytes, the width of the swizzle
constexpr int kStepBytes = 2 * kStep;
constexpr int kMultipliers = 256;  // threads that multiply; the copying warp follows them
constexpr int kMultiplierWarps = kMultipliers / 32;
constexpr int kThreads = kMultipliers + 32;
constexpr int kPairedRows = 128;    // rows of the weights with 64 gates and their ups
constexpr int kTokenTileGroup = 8;  // token tiles that are done with all weights before the next ones begin

/// Shared memory of a block, in bytes from an address divisible by 1024: the ring, then a part of the result
/// on its way out, then the barriers. It leaves some KB for blocks of the kernels around this one. With two
/// blocks per multiprocessor, the next product's weights come while this one's last sums are written.
template <int kTileTokens, int kPerMultiprocessor>
struct Layout {
  static constexpr int kTokens = kTileTokens;
  static constexpr int kHeld = kPerMultiprocessor;
  static constexpr int kRowBlocks = 1;  // that a warpgroup multiplies at once, of kGroupRows
  static constexpr int kRows = 2 * kRowBlocks * kGroupRows;
  static constexpr bool kPaired = false;
  static constexpr bool kHalves = false;
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kStepBytes;
  static constexpr int kStages = 200 / kHeld * 1024 / kStageBytes;
  static constexpr int kMostOutTokens = 64 / kHeld;
  static constexpr int kOutTokens = kTokens < kMostOutTokens ? kTokens : kMostOutTokens;
  static constexpr int kOutStride = 2 * kRows + 16;  // bytes from token to token: spreads them over the banks
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + kOutTokens * kOutStride;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8;
  static constexpr int kAllocated = kBytes + 1024;  // to align
  static_assert(kTokens % 16 == 0 && kTokens % kOutTokens == 0 && kStageBytes % 1024 == 0);
  static_assert((kAllocated + 1024) * kHeld <= 228 * 1024);  // 1024: the system's, of each block
  static_assert(kRows * kTokens * 4 <= kOut, "partial sums replace the ring");
};

/// What a launch computes.
struct Work {
  Bf16* y;
  std::int64_t y_stride;
  int tokens;
  int features;      // columns of y
  bool wide_stores;  // y's rows are 16-byte aligned
  int token_tiles;
  int row_groups;  // of `share` row tiles
  int items;       // (row group, token tile) pairs, in the order of find_tile()
  int halves;  // after them: halves of tiles, by tokens, for a last round that whole ones would fill badly
  int steps;   // of K
  int share;
  int part_tokens;  // of a tile, that each of `share` blocks fetches
  int split;
  int ahead;  // steps beyond the ring whose weights are asked into L2 before the activations exist
};

/// Where a block stands in it.
struct Place {
  int member;      // of those that share tokens
  int slice;       // of K
  int step_begin;  // of K
  int steps;
  int first_item;
  int item_stride;
};

__device__ __forceinline__ Place find_place(const Work& work) {
  const int cluster = work.share * work.split;
  const int rank = static_cast<int>(blockIdx.x) % cluster;  // as clusters number their blocks
  Place place;
  place.member = rank % work.share;
  place.slice = rank / work.share;
  place.step_begin = work.steps * place.slice / work.split;
  place.steps = work.steps * (place.slice + 1) / work.split - place.step_begin;
  place.first_item = static_cast<int>(blockIdx.x) / cluster;
  place.item_stride = static_cast<int>(gridDim.x) / cluster;
  return place;
}

struct Tile {
  int row;  // of the weights
  int token;
};

/// Blocks at work at the same time have few different rows and few different tokens, which L2 then holds:
/// some token tiles vary fastest, then the rows, then come the next token tiles.
template <typename L>
__device__ __forceinline__ Tile find_tile(const Work& work, const Place& place, int item) {
  const int items_of_group = kTokenTileGroup * work.row_groups;
  const int first_token_tile = item / items_of_group * kTokenTileGroup;
  const int width = min(kTokenTileGroup, work.token_tiles - first_token_tile);
  const int rest = item % items_of_group;
  const int row_tile = rest / width * work.share + place.member;
  return {row_tile * L::kRows, (first_token_tile + rest % width) * L::kTokens};
}

/// One of work.halves.
template <typename L>
__device__ __forceinline__ Tile find_half(const Work& work, const Place& place, int half) {
  Tile tile = find_tile<L>(work, place, work.items + half / 2);
  tile.token += half % 2 * (L::kTokens / 2);
  return tile;
}

__device__ __forceinline__ void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kMultipliers) : "memory");
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(both.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y)) << 16;
}

/// Rounds a warp's 16 features of 8 tokens (four sums a thread) and puts them into `out`, token by token.
template <typename L>
__device__ __forceinline__ void put_out(SharedAddress out, int token, float4 sums) {
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  const unsigned feature = warp * 16 + lane / 8 % 2 * 8;
  hopper::store_transposed(out + (token + lane % 8) * L::kOutStride + 2 * feature, pack(sums.x, sums.y),
                           pack(sums.z, sums.w));
}

union Chunk {
  uint4 bits;
  Bf16Pack<8> pack;
  __device__ Chunk() : bits() {}
};

/// Up to 8 features of a token; `exist` of them do.
__device__ __forceinline__ void store_chunk(Bf16* to, const Chunk& chunk, int exist, bool wide) {
  if (wide && exist >= 8) {
    *reinterpret_cast<uint4*>(to) = chunk.bits;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < exist) to[i] = chunk.pack.values[i];
}

/// gelu_tanh() (kernels/cuda/gelu.h) with the quick division: two ulp of fp32, of which bf16 shows nothing.
__device__ __forceinline__ float quick_gelu_tanh(float g) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216f;
  return __fdividef(g, 1.0f + __expf(-kTwoSqrt2OverPi * (g + 0.044715f * (g * g * g))));
}

/// bf16(gelu_tanh(gate)) * up, of rounded values.
__device__ __forceinline__ float geglu(float gate, float up) {
  return rounded(quick_gelu_tanh(gate)) * up;
}

__device__ __forceinline__ void geglu_chunk(Chunk& gate, const Chunk& up) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    gate.pack.values[i] = __float2bfloat16_rn(
        geglu(__bfloat162float(gate.pack.values[i]), __bfloat162float(up.pack.values[i])));
}

/// From `out` to memory: the tile's rows for tokens [token, token + count), by all multiplying threads. With
/// kGeglu, the first half of the rows are gates and the other half are their ups.
template <typename L, bool kGeglu>
__device__ __forceinline__ void store_out(const unsigned char* out, const Work& work, int tile_row, int token,
                                          int count) {
  constexpr int kFeatures = kGeglu ? L::kRows / 2 : L::kRows;
  constexpr int kChunks = kFeatures / 8;
  const int first_feature = tile_row / L::kRows * kFeatures;
  count = min(count, work.tokens - token);
  for (int i = static_cast<int>(threadIdx.x); i < count * kChunks; i += kMultipliers) {
    const int feature = first_feature + i % kChunks * 8;
    const unsigned char* from = out + i / kChunks * L::kOutStride + i % kChunks * 16;
    Chunk chunk;
    chunk.bits = *reinterpret_cast<const uint4*>(from);
    if constexpr (kGeglu) {
      Chunk up;
      up.bits = *reinterpret_cast<const uint4*>(from + 2 * kFeatures);
      geglu_chunk(chunk, up);
    }
    store_chunk(work.y + (token + i / kChunks) * work.y_stride + feature, chunk, work.features - feature,
                work.wide_stores);
  }
}

template <typename L, bool kGeglu>
__device__ __forceinline__ void write_sums(const float (&sums)[L::kTokens / 2], unsigned char* shared,
                                           const Work& work, const Tile& tile) {
  constexpr int kPart = L::kOutTokens;
  unsigned char* out = shared + L::kOut;
#pragma unroll
  for (int first = 0; first < L::kTokens; first += kPart) {
    if (tile.token + first >= work.tokens) break;
#pragma unroll
    for (int token = 0; token < kPart; token += 8) {
      const float* four = sums + (first + token) / 2;
      put_out<L>(hopper::shared_address(out), token, make_float4(four[0], four[1], four[2], four[3]));
    }
    sync_multipliers();
    store_out<L, kGeglu>(out, work, tile.row, tile.token + first, kPart);
    sync_multipliers();
  }
}

/// This thread's sums of kCount groups of 8 tokens, from kSplit blocks: all loads, then the additions, in
/// order of K. Into `out`, from that group of it.
template <typename L, int kSplit, int kCount>
__device__ __forceinline__ void add_and_put(SharedAddress base, int first, const Work& work,
                                            const Place& place, int out_group) {
  float4 parts[kCount][kSplit];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int slice = 0; slice < kSplit; ++slice) {
      const SharedAddress own = base + ((first + i) * kMultipliers + threadIdx.x) * 16;
      parts[i][slice] = hopper::load_from_cluster(hopper::in_block(own, slice * work.share + place.member));
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float4 sum = parts[i][0];
#pragma unroll
    for (int slice = 1; slice < kSplit; ++slice) {
      sum.x += parts[i][slice].x;
      sum.y += parts[i][slice].y;
      sum.z += parts[i][slice].z;
      sum.w += parts[i][slice].w;
    }
    put_out<L>(base + L::kOut, 8 * (out_group + i), sum);
  }
}

/// A block's share of the tokens, of which every block of the cluster has left its sums in place of its ring.
template <typename L, bool kGeglu, int kSplit>
__device__ __forceinline__ void add_slices(unsigned char* shared, const Work& work, const Place& place,
                                           const Tile& tile) {
  constexpr int kGroups = L::kTokens / 8;
  constexpr int kPart = L::kOutTokens / 8;
  constexpr int kOwn = kGroups < kSplit ? 1 : kGroups / kSplit;   // or none
  constexpr int kAtOnce = kOwn < 8 / kSplit ? kOwn : 8 / kSplit;  // eight loads under way hide their latency
  static_assert(kOwn % kAtOnce == 0 && kPart % kAtOnce == 0);
  const SharedAddress base = hopper::shared_address(shared);
  const int end = kGroups * (place.slice + 1) / kSplit;
  for (int first = kGroups * place.slice / kSplit; first < end; first += kPart) {
    const int part_end = min(first + kPart, end);
    for (int group = first; group < part_end; group += kAtOnce)
      add_and_put<L, kSplit, kAtOnce>(base, group, work, place, group - first);
    sync_multipliers();
    store_out<L, kGeglu>(shared + L::kOut, work, tile.row, tile.token + 8 * first, 8 * (part_end - first));
    sync_multipliers();
  }
}

/// Every thread's sums, in place of the ring: four by four, in the order of the threads.
template <typename L>
__device__ __forceinline__ void leave_sums(const float (&sums)[L::kTokens / 2], unsigned char* shared) {
  sync_multipliers();  // nobody multiplies from the ring any more
  auto* to = reinterpret_cast<float4*>(shared) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < L::kTokens / 8; ++i)
    to[i * kMultipliers] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
