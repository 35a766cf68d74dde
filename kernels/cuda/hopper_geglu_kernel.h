// The kernel of hopper_gemm.cu for many tokens and GeGLU: as hopper_gemm_kernel.h, but a gate and its up are
// sums of the same thread, so that the results leave through neither other threads nor other warpgroups.
//
// The copy engine puts 8 rows of gates and the 8 rows of their ups in turn (a box of five dimensions:
// columns, 8 rows, gate or up, groups of 8 rows, blocks of 64 gates and 64 ups). The 16 rows that a warp
// multiplies are then 8 gates, in its threads' sums 4 j and 4 j + 1, and their ups, in 4 j + 2 and 4 j + 3.
#pragma once

#include "kernels/cuda/hopper_gemm_kernel.h"

namespace gemmad::cuda::hopper_gemm_kernel {

/// As Layout. Each warpgroup has its own part of the result on its way out, kOutFeatures features of kTokens
/// tokens: boxes of the copy engine of kOutBoxTokens each, swizzled over the width of a token.
template <int kTileTokens, int kBlocksOfRows>
struct PairedLayout {
  static constexpr int kTokens = kTileTokens;
  static constexpr int kHeld = 1;
  static constexpr int kRowBlocks = kBlocksOfRows;
  static constexpr int kRows = 2 * kRowBlocks * kGroupRows;
  static constexpr bool kPaired = true;
  static constexpr bool kHalves = kTokens == 256;  // whether it can do halves of tiles
  static constexpr int kWeightBytes = kRows * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kStepBytes;
  static constexpr int kOutFeatures = kRowBlocks * kGroupRows / 2;
  static constexpr int kOutBoxTokens = kTokens % 128 == 0 ? 128 : kTokens;
  static constexpr int kOutBytes = kTokens * kOutFeatures * 2;
  static constexpr int kStages = (225 * 1024 - 2 * kOutBytes - 256) / kStageBytes;
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + 2 * kOutBytes;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8;
  static constexpr int kAllocated = kBytes + 1024;  // to align
  static_assert(kTokens % 32 == 0 && kStageBytes % 1024 == 0 && kOutBytes % 1024 == 0);
  static_assert(kOutFeatures == 32 || kOutFeatures == 64, "what swizzle_out() knows");
  static_assert(kAllocated <= 227 * 1024);
};

__device__ __forceinline__ void sync_group() {
  asm volatile("bar.sync %0, 128;" ::"r"(2 + threadIdx.x / 128) : "memory");
}

/// Where the 16 bytes of that number of a token lie among its own, as the copy engine's swizzles of 128 and
/// of 64 bytes have it.
template <typename L>
__device__ __forceinline__ unsigned swizzle_out(unsigned chunk, unsigned token) {
  return L::kOutFeatures == 64 ? chunk ^ token % 8 : chunk ^ token / 2 % 4;
}

__device__ __forceinline__ std::uint32_t geglu_of_two(const float* four) {
  return pack(geglu(rounded(four[0]), rounded(four[2])), geglu(rounded(four[1]), rounded(four[3])));
}

template <typename L, int kTokens>
__device__ __forceinline__ void put_pairs(const Sums<L, kTokens>& sums, SharedAddress out, int tokens) {
  const unsigned warp = threadIdx.x / 32 % 4;
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < L::kRowBlocks; ++block) {
    const SharedAddress to = out + lane * (L::kOutFeatures * 2) + swizzle_out<L>(4 * block + warp, lane) * 16;
#pragma unroll
    for (int token = 0; token < kTokens; token += 32) {
      if (token >= tokens) break;
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = geglu_of_two(&sums[block][token / 2 + 4 * i]);
      hopper::store_transposed(to + token * (L::kOutFeatures * 2), words);
    }
  }
}

/// A warpgroup's part of the tile. The copy engine writes it while the next tile is multiplied.
template <typename L, int kTokens = L::kTokens>
__device__ __forceinline__ void write_pairs(const Sums<L, kTokens>& sums, SharedAddress out,
                                            const CUtensorMap* out_map, const Work& work, const Tile& tile) {
  const int group = static_cast<int>(threadIdx.x / 128);
  const bool leads = threadIdx.x % 128 == 0;
  if (leads) hopper::wait_stores_read();
  sync_group();
  put_pairs<L, kTokens>(sums, out, work.tokens - tile.token);
  hopper::publish_stores();
  sync_group();
  if (!leads) return;
#pragma unroll
  for (int token = 0; token < kTokens; token += L::kOutBoxTokens)
    hopper::store_box(out_map, tile.row / 2 + group * L::kOutFeatures, tile.token + token,
                      out + token * (L::kOutFeatures * 2));
}

template <typename L>
__device__ __forceinline__ void write_halves(Ring<L>& ring, SharedAddress out, const CUtensorMap* out_map,
                                             const Work& work, const Place& place) {
  constexpr int kTokens = L::kTokens / 2;
  Sums<L, kTokens> sums;
  for (int half = place.first_item; half < work.halves; half += place.item_stride) {
    multiply<L, kTokens>(sums, ring, work, place);
    write_pairs<L, kTokens>(sums, out, out_map, work, find_half<L>(work, place, half));
  }
}

template <typename L>
__device__ __forceinline__ void multiply_and_write_pairs(unsigned char* shared, Ring<L> ring,
                                                         const CUtensorMap* out_map, const Work& work,
                                                         const Place& place) {
  wait_for_previous();  // it may read what is written here
  const SharedAddress out = hopper::shared_address(shared) + L::kOut + threadIdx.x / 128 * L::kOutBytes;
  Sums<L> sums;
  for (int item = place.first_item; item < work.items; item += place.item_stride) {
    multiply<L>(sums, ring, work, place);
    write_pairs<L>(sums, out, out_map, work, find_tile<L>(work, place, item));
  }
  if constexpr (L::kHalves) write_halves<L>(ring, out, out_map, work, place);
  if (threadIdx.x % 128 == 0) hopper::wait_stores();
}

/// work.split is 1.
template <typename L>
__global__ void __launch_bounds__(kThreads, L::kHeld)
    multiply_pairs_kernel(const __grid_constant__ CUtensorMap weight_map,
                          const __grid_constant__ CUtensorMap token_map,
                          const __grid_constant__ CUtensorMap out_map, const Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  let_next_start();
  extern __shared__ unsigned char allocated[];
  const Place place = find_place(work);
  unsigned char* shared = prepare<L>(allocated, weight_map, token_map, work, place);
  const Ring<L> ring{hopper::shared_address(shared)};
  if (threadIdx.x < kMultipliers) {
    multiply_and_write_pairs<L>(shared, ring, &out_map, work, place);
  } else {
    copy_by_one<L>(ring, weight_map, token_map, work, place);
  }
#endif
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
