// What the blocks of hopper_gemm_kernel.h compute and where their part lies, and how they write it: sums are
// rounded, turned (the weights' rows are the product's columns) in shared memory, and stored 16 bytes at a
// time.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/hopper.h"

namespace gemmad::cuda::hopper_gemm_kernel {

using hopper::SharedAddress;

constexpr int kRows = 128;      // of the weights, per block
constexpr int kGroupRows = 64;  // of them, per warpgroup
constexpr int kStep = 64;       // columns of K per stage: 128 bytes, the width of the swizzle
constexpr int kStepBytes = 2 * kStep;
constexpr int kMultipliers = 256;  // threads that multiply; the copying warp follows them
constexpr int kMultiplierWarps = kMultipliers / 32;
constexpr int kThreads = kMultipliers + 32;

/// Shared memory of a block, in bytes from an address divisible by 1024: the ring, then a part of the result
/// on its way out, then the barriers. It leaves some KB for blocks of the kernels around this one.
template <int kTokens>
struct Layout {
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kStepBytes;
  static constexpr int kStages = 200 * 1024 / kStageBytes;
  static constexpr int kOutTokens = kTokens < 64 ? kTokens : 64;
  static constexpr int kOutStride = 2 * kRows + 16;  // bytes from token to token: spreads them over the banks
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + kOutTokens * kOutStride;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8;
  static constexpr int kAllocated = kBytes + 1024;  // to align
  static_assert(kTokens % 16 == 0 && kTokens % kOutTokens == 0 && kStageBytes % 1024 == 0);
  static_assert(kAllocated <= 227 * 1024);
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
  int items;  // (group of `share` row tiles, token tile) pairs; token tiles vary fastest
  int steps;  // of K
  int share;
  int split;
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

template <int kTokens>
__device__ __forceinline__ Tile find_tile(const Work& work, const Place& place, int item) {
  const int row_tile = item / work.token_tiles * work.share + place.member;
  return {row_tile * kRows, item % work.token_tiles * kTokens};
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
template <int kTokens>
__device__ __forceinline__ void put_out(SharedAddress out, int token, float4 sums) {
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  const unsigned feature = warp * 16 + lane / 8 % 2 * 8;
  hopper::store_transposed(out + (token + lane % 8) * Layout<kTokens>::kOutStride + 2 * feature,
                           pack(sums.x, sums.y), pack(sums.z, sums.w));
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

__device__ __forceinline__ void geglu_chunk(Chunk& gate, const Chunk& up) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float activated = rounded(gelu_tanh(__bfloat162float(gate.pack.values[i])));
    gate.pack.values[i] = __float2bfloat16_rn(activated * __bfloat162float(up.pack.values[i]));
  }
}

/// From `out` to memory: the tile's rows for tokens [token, token + count), by all multiplying threads. With
/// kGeglu, the first half of the rows are gates and the other half are their ups.
template <int kTokens, bool kGeglu>
__device__ __forceinline__ void store_out(const unsigned char* out, const Work& work, int tile_row, int token,
                                          int count) {
  constexpr int kFeatures = kGeglu ? kRows / 2 : kRows;
  constexpr int kChunks = kFeatures / 8;
  const int first_feature = tile_row / kRows * kFeatures;
  count = min(count, work.tokens - token);
  for (int i = static_cast<int>(threadIdx.x); i < count * kChunks; i += kMultipliers) {
    const int feature = first_feature + i % kChunks * 8;
    const unsigned char* from = out + i / kChunks * Layout<kTokens>::kOutStride + i % kChunks * 16;
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

template <int kTokens, bool kGeglu>
__device__ __forceinline__ void write_sums(const float (&sums)[kTokens / 2], unsigned char* shared,
                                           const Work& work, const Tile& tile) {
  constexpr int kPart = Layout<kTokens>::kOutTokens;
  unsigned char* out = shared + Layout<kTokens>::kOut;
#pragma unroll
  for (int first = 0; first < kTokens; first += kPart) {
    if (tile.token + first >= work.tokens) break;
#pragma unroll
    for (int token = 0; token < kPart; token += 8) {
      const float* four = sums + (first + token) / 2;
      put_out<kTokens>(hopper::shared_address(out), token, make_float4(four[0], four[1], four[2], four[3]));
    }
    sync_multipliers();
    store_out<kTokens, kGeglu>(out, work, tile.row, tile.token + first, kPart);
    sync_multipliers();
  }
}

/// This thread's sums of kCount groups of 8 tokens, from kSplit blocks: all loads, then the additions, in
/// order of K. Into `out`, from that group of it.
template <int kTokens, int kSplit, int kCount>
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
    put_out<kTokens>(base + Layout<kTokens>::kOut, 8 * (out_group + i), sum);
  }
}

/// A block's share of the tokens, of which every block of the cluster has left its sums in place of its ring.
template <int kTokens, bool kGeglu, int kSplit>
__device__ __forceinline__ void add_slices(unsigned char* shared, const Work& work, const Place& place,
                                           const Tile& tile) {
  constexpr int kGroups = kTokens / 8;
  constexpr int kPart = Layout<kTokens>::kOutTokens / 8;
  constexpr int kOwn = kGroups < kSplit ? 1 : kGroups / kSplit;   // or none
  constexpr int kAtOnce = kOwn < 8 / kSplit ? kOwn : 8 / kSplit;  // eight loads under way hide their latency
  static_assert(kOwn % kAtOnce == 0 && kPart % kAtOnce == 0);
  const SharedAddress base = hopper::shared_address(shared);
  const int end = kGroups * (place.slice + 1) / kSplit;
  for (int first = kGroups * place.slice / kSplit; first < end; first += kPart) {
    const int part_end = min(first + kPart, end);
    for (int group = first; group < part_end; group += kAtOnce)
      add_and_put<kTokens, kSplit, kAtOnce>(base, group, work, place, group - first);
    sync_multipliers();
    store_out<kTokens, kGeglu>(shared + Layout<kTokens>::kOut, work, tile.row, tile.token + 8 * first,
                               8 * (part_end - first));
    sync_multipliers();
  }
}

/// Every thread's sums, in place of the ring: four by four, in the order of the threads.
template <int kTokens>
__device__ __forceinline__ void leave_sums(const float (&sums)[kTokens / 2], unsigned char* shared) {
  sync_multipliers();  // nobody multiplies from the ring any more
  auto* to = reinterpret_cast<float4*>(shared) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kTokens / 8; ++i)
    to[i * kMultipliers] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
