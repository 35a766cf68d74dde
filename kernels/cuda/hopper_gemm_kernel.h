// The kernel of hopper_gemm.cu.
//
// A block computes some rows of the weights by some tokens, as its layout L says (hopper_gemm_output.h). One
// warp starts the copies of both operands into a ring of stages, 64 columns of K each; two warpgroups
// multiply half of the rows each as stages fill. Blocks form clusters of share * split: `share` blocks have
// the same tokens and neighbouring rows, each fetches a part of the tokens for all of them (L2 could not feed
// every block its own copy); `split` blocks have the same tokens and rows but divide K, and add what they
// have through each other's shared memory, in order of K.
#pragma once

#include <cstdint>

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/hopper_gemm_output.h"
#include "kernels/cuda/hopper_wgmma.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda::hopper_gemm_kernel {

using hopper::SharedAddress;

/// The ring's stages and barriers, and where in it a warp is. All warps go round in the same order.
template <typename L>
struct Ring {
  SharedAddress base;
  int stage = 0;
  std::uint32_t parity = 0;  // of the round

  __device__ __forceinline__ SharedAddress weights() const { return base + stage * L::kStageBytes; }
  __device__ __forceinline__ SharedAddress tokens() const { return weights() + L::kWeightBytes; }
  __device__ __forceinline__ SharedAddress filled() const { return base + L::kBarriers + stage * 8; }
  __device__ __forceinline__ SharedAddress emptied() const { return filled() + L::kStages * 8; }
  __device__ __forceinline__ void advance() {
    if (++stage == L::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  /// By one thread, before any other use. A stage is empty when every multiplying warp of all the blocks that
  /// are sent the tokens together has read it.
  __device__ __forceinline__ void init_barriers(int share) {
    for (; parity == 0; advance()) {
      hopper::barrier_init(filled(), 1);
      hopper::barrier_init(emptied(), kMultiplierWarps * share);
    }
    parity = 0;
    hopper::publish_barriers();
  }
};

// ---- the copying thread ----

template <typename L>
struct Copier {
  const CUtensorMap* weight_map;  // boxes of L::kRows rows
  const CUtensorMap* token_map;   // boxes of work.part_tokens rows
  std::uint64_t weight_policy;
  std::uint64_t token_policy;

  __device__ __forceinline__ void copy_weights(const Ring<L>& ring, const Tile& tile, int step,
                                               int stage_bytes = L::kStageBytes) const {
    hopper::arrive_expecting(ring.filled(), stage_bytes);
    if constexpr (L::kPaired) {
      hopper::copy_deep_box(ring.weights(), weight_map, step * kStep, tile.row / kPairedRows, ring.filled(),
                            weight_policy);
    } else {
      hopper::copy_box(ring.weights(), weight_map, step * kStep, tile.row, ring.filled(), weight_policy);
    }
  }
  __device__ __forceinline__ void prefetch_weights(const Tile& tile, int step) const {
    if constexpr (L::kPaired) {
      hopper::prefetch_deep_box(weight_map, step * kStep, tile.row / kPairedRows);
    } else {
      hopper::prefetch_box(weight_map, step * kStep, tile.row);
    }
  }
  __device__ __forceinline__ void copy_tokens(const Ring<L>& ring, const Tile& tile, int step,
                                              const Work& work, const Place& place) const {
    if (work.share == 1) {
      hopper::copy_box(ring.tokens(), token_map, step * kStep, tile.token, ring.filled(), token_policy);
      return;
    }
    const int first = place.member * work.part_tokens;
    const auto blocks = static_cast<std::uint16_t>(((1 << work.share) - 1) << (place.slice * work.share));
    hopper::copy_box_to(blocks, ring.tokens() + first * kStepBytes, token_map, step * kStep,
                        tile.token + first, ring.filled(), token_policy);
  }
};

/// What waits for nobody: the first stages' weights, before the activations exist and before the cluster has
/// met.
template <typename L>
__device__ __forceinline__ void copy_first_weights(const Copier<L>& copier, Ring<L> ring, const Work& work,
                                                   const Place& place) {
  const int early = min(L::kStages, place.steps);
  const Tile first = find_tile<L>(work, place, place.first_item);
  for (int step = 0; step < early; ++step, ring.advance())
    copier.copy_weights(ring, first, place.step_begin + step);
  for (int step = early; step < min(early + work.ahead, place.steps); ++step)
    copier.prefetch_weights(first, place.step_begin + step);
}

/// Half a tile is as many tokens as each of two blocks fetches of a whole one: the first fetches them.
template <typename L>
__device__ __forceinline__ void copy_halves(const Copier<L>& copier, Ring<L>& ring, const Work& work,
                                            const Place& place) {
  constexpr int kBytes = L::kWeightBytes + L::kTokens / 2 * kStepBytes;
  for (int half = place.first_item; half < work.halves; half += place.item_stride) {
    const Tile tile = find_half<L>(work, place, half);
    for (int step = 0; step < place.steps; ++step, ring.advance()) {
      hopper::wait(ring.emptied(), ring.parity ^ 1);
      copier.copy_weights(ring, tile, step, kBytes);
      if (place.member == 0) copier.copy_tokens(ring, tile, step, work, place);
    }
  }
}

template <typename L>
__device__ __forceinline__ void copy_operands(const Copier<L>& copier, Ring<L> ring, const Work& work,
                                              const Place& place) {
  const int early = min(L::kStages, place.steps);
  wait_for_previous();
  for (int item = place.first_item; item < work.items; item += place.item_stride) {
    const Tile tile = find_tile<L>(work, place, item);
    for (int i = 0; i < place.steps; ++i, ring.advance()) {
      const int step = place.step_begin + i;
      if (item != place.first_item || i >= early) {
        hopper::wait(ring.emptied(), ring.parity ^ 1);
        copier.copy_weights(ring, tile, step);
      }
      copier.copy_tokens(ring, tile, step, work, place);
    }
  }
  if constexpr (L::kHalves) copy_halves<L>(copier, ring, work, place);
  // Other blocks still report to this one's barriers, which must not go before the last has.
  for (int i = 0; i < L::kStages; ++i, ring.advance())
    hopper::wait(ring.emptied(), ring.parity ^ 1);
}

// ---- the multiplying threads ----

/// This warp has read the stage: tells everyone who copies into it.
__device__ __forceinline__ void release_stage(SharedAddress emptied, const Work& work, const Place& place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (work.share == 1) {
    if (lane == 0) hopper::arrive(emptied);
  } else if (lane < work.share) {
    hopper::arrive_in_cluster(hopper::in_block(emptied, place.slice * work.share + lane));
  }
}

template <typename L, int kTokens = L::kTokens>
using Sums = float[L::kRowBlocks][kTokens / 2];

template <int kBlocks, int kCount>
__device__ __forceinline__ void pin_all(float (&sums)[kBlocks][kCount]) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    hopper::pin(sums[block]);
}

/// sums = the warpgroup's rows by the block's (first kTokens) tokens over its part of K, 64 rows after
/// another laid out as hopper_wgmma.h says. One step's products are under way while the next ones are asked
/// for.
template <typename L, int kTokens = L::kTokens>
__device__ __forceinline__ void multiply(Sums<L, kTokens>& sums, Ring<L>& ring, const Work& work,
                                         const Place& place) {
  constexpr int kBlockBytes = kGroupRows * kStepBytes;
  const SharedAddress group_offset = threadIdx.x / 128 * (L::kRowBlocks * kBlockBytes);
  SharedAddress previous = 0;
  pin_all(sums);
  for (int i = 0; i < place.steps; ++i) {
    hopper::wait(ring.filled(), ring.parity);
    const std::uint64_t a = hopper::matrix_descriptor(ring.weights() + group_offset, 16);
    const std::uint64_t b = hopper::matrix_descriptor(ring.tokens(), 16);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
#pragma unroll
      for (int block = 0; block < L::kRowBlocks; ++block)  // descriptors count 16 bytes; 2: 16 of K
        hopper::wgmma(sums[block], a + block * (kBlockBytes / 16) + 2 * k, b + 2 * k, i > 0 || k > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (i > 0) release_stage(previous, work, place);
    previous = ring.emptied();
    ring.advance();
  }
  hopper::wgmma_wait<0>();
  pin_all(sums);
  release_stage(previous, work, place);
}

// ---- the whole ----

template <typename L, bool kGeglu>
__device__ __forceinline__ void multiply_and_write(unsigned char* shared, Ring<L> ring, const Work& work,
                                                   const Place& place) {
  wait_for_previous();  // it may read what is written here
  Sums<L> sums;
  if (work.split == 1) {
    for (int item = place.first_item; item < work.items; item += place.item_stride) {
      multiply<L>(sums, ring, work, place);
      write_sums<L, kGeglu>(sums[0], shared, work, find_tile<L>(work, place, item));
    }
    return;
  }
  // Of a cluster that divides K, there is one for each item.
  multiply<L>(sums, ring, work, place);
  leave_sums<L>(sums[0], shared);
  hopper::cluster_sync();
  const Tile tile = find_tile<L>(work, place, place.first_item);
  if (work.split == 2) add_slices<L, kGeglu, 2>(shared, work, place, tile);
  if (work.split == 4) add_slices<L, kGeglu, 4>(shared, work, place, tile);
  if (work.split == 8) add_slices<L, kGeglu, 8>(shared, work, place, tile);
}

template <typename L>
__device__ __forceinline__ Copier<L> make_copier(const CUtensorMap& weight_map, const CUtensorMap& token_map,
                                                 const Work& work) {
  // Weights that more than one tile of tokens needs should stay until the others have come for them.
  const auto keep_weights = work.token_tiles == 1 ? hopper::Keep::kFirstOut : hopper::Keep::kNormal;
  return {&weight_map, &token_map, hopper::cache_policy(keep_weights),
          hopper::cache_policy(hopper::Keep::kLastOut)};
}

/// What every thread does first: where the block's shared memory begins, with its barriers ready.
template <typename L>
__device__ __forceinline__ unsigned char* prepare(unsigned char* allocated, const CUtensorMap& weight_map,
                                                  const CUtensorMap& token_map, const Work& work,
                                                  const Place& place) {
  unsigned char* shared = allocated + (1024 - hopper::shared_address(allocated) % 1024) % 1024;
  if (threadIdx.x == kMultipliers) {
    hopper::prefetch_map(&weight_map);
    hopper::prefetch_map(&token_map);
    const Ring<L> ring{hopper::shared_address(shared)};
    Ring<L>(ring).init_barriers(work.share);
    copy_first_weights<L>(make_copier<L>(weight_map, token_map, work), ring, work, place);
  }
  __syncwarp();
  if (work.share * work.split > 1) {
    hopper::cluster_meet();  // others arrive at these barriers and copy to this block
  } else {
    __syncthreads();
  }
  return shared;
}

/// By the copying warp.
template <typename L>
__device__ __forceinline__ void copy_by_one(const Ring<L>& ring, const CUtensorMap& weight_map,
                                            const CUtensorMap& token_map, const Work& work,
                                            const Place& place) {
  if (threadIdx.x == kMultipliers)
    copy_operands<L>(make_copier<L>(weight_map, token_map, work), ring, work, place);
  __syncwarp();
}

template <typename L, bool kGeglu>
__global__ void __launch_bounds__(kThreads, L::kHeld)
    multiply_kernel(const __grid_constant__ CUtensorMap weight_map,
                    const __grid_constant__ CUtensorMap token_map, const Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  let_next_start();
  extern __shared__ unsigned char allocated[];
  const Place place = find_place(work);
  unsigned char* shared = prepare<L>(allocated, weight_map, token_map, work, place);
  const Ring<L> ring{hopper::shared_address(shared)};
  if (threadIdx.x < kMultipliers) {
    multiply_and_write<L, kGeglu>(shared, ring, work, place);
  } else {
    copy_by_one<L>(ring, weight_map, token_map, work, place);
    if (work.split > 1) hopper::cluster_sync();  // the one in multiply_and_write()
  }
  if (work.split > 1) hopper::cluster_meet();  // others may still read this block's sums
#endif
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
