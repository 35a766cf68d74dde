// The kernel of hopper_gemm.cu.
//
// A block computes 128 rows of the weights by kTokens tokens. One warp starts the copies of both operands
// into a ring of stages, 64 columns of K each; two warpgroups multiply 64 rows each as stages fill. Blocks
// form clusters of share * split: `share` blocks have the same tokens and neighbouring rows, each fetches a
// part of the tokens for all of them (L2 could not feed every block its own copy); `split` blocks have the
// same tokens and rows but divide K, and add what they have through each other's shared memory, in order of
// K.
#pragma once

#include <cstdint>

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/hopper_gemm_output.h"
#include "kernels/cuda/hopper_wgmma.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda::hopper_gemm_kernel {

using hopper::SharedAddress;

/// The ring's stages and barriers, and where in it a warp is. All warps go round in the same order.
template <int kTokens>
struct Ring {
  using L = Layout<kTokens>;
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

template <int kTokens>
struct Copier {
  const CUtensorMap* weight_map;  // boxes of kRows rows
  const CUtensorMap* token_map;   // boxes of kTokens / share rows
  std::uint64_t weight_policy;
  std::uint64_t token_policy;

  __device__ __forceinline__ void copy_weights(const Ring<kTokens>& ring, const Tile& tile, int step) const {
    hopper::arrive_expecting(ring.filled(), Layout<kTokens>::kStageBytes);
    hopper::copy_box(ring.weights(), weight_map, step * kStep, tile.row, ring.filled(), weight_policy);
  }
  __device__ __forceinline__ void copy_tokens(const Ring<kTokens>& ring, const Tile& tile, int step,
                                              const Work& work, const Place& place) const {
    if (work.share == 1) {
      hopper::copy_box(ring.tokens(), token_map, step * kStep, tile.token, ring.filled(), token_policy);
      return;
    }
    const int first = place.member * (kTokens / work.share);
    const auto blocks = static_cast<std::uint16_t>(((1 << work.share) - 1) << (place.slice * work.share));
    hopper::copy_box_to(blocks, ring.tokens() + first * kStepBytes, token_map, step * kStep,
                        tile.token + first, ring.filled(), token_policy);
  }
};

/// The first stages' weights are asked for at once, before the activations exist.
template <int kTokens>
__device__ __forceinline__ void copy_operands(const Copier<kTokens>& copier, const Ring<kTokens>& start,
                                              const Work& work, const Place& place) {
  const int early = min(Layout<kTokens>::kStages, place.steps);
  Ring<kTokens> ring = start;
  const Tile first = find_tile<kTokens>(work, place, place.first_item);
  for (int step = 0; step < early; ++step, ring.advance())
    copier.copy_weights(ring, first, place.step_begin + step);

  wait_for_previous();
  ring = start;
  for (int item = place.first_item; item < work.items; item += place.item_stride) {
    const Tile tile = find_tile<kTokens>(work, place, item);
    for (int i = 0; i < place.steps; ++i, ring.advance()) {
      const int step = place.step_begin + i;
      if (item != place.first_item || i >= early) {
        hopper::wait(ring.emptied(), ring.parity ^ 1);
        copier.copy_weights(ring, tile, step);
      }
      copier.copy_tokens(ring, tile, step, work, place);
    }
  }
  // Other blocks still report to this one's barriers, which must not go before the last has.
  for (int i = 0; i < Layout<kTokens>::kStages; ++i, ring.advance())
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

/// sums = the warpgroup's 64 rows by kTokens tokens over the block's part of K, laid out as
/// hopper_wgmma.h says. One step's products are under way while the next ones are asked for.
template <int kTokens>
__device__ __forceinline__ void multiply(float (&sums)[kTokens / 2], Ring<kTokens>& ring, const Work& work,
                                         const Place& place) {
  const SharedAddress group_offset = threadIdx.x / 128 * (kGroupRows * kStepBytes);
  SharedAddress previous = 0;
  hopper::pin(sums);
  for (int i = 0; i < place.steps; ++i) {
    hopper::wait(ring.filled(), ring.parity);
    const std::uint64_t a = hopper::matrix_descriptor(ring.weights() + group_offset);
    const std::uint64_t b = hopper::matrix_descriptor(ring.tokens());
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k)
      hopper::wgmma(sums, a + 2 * k, b + 2 * k, i > 0 || k > 0);  // 2: 32 bytes
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (i > 0) release_stage(previous, work, place);
    previous = ring.emptied();
    ring.advance();
  }
  hopper::wgmma_wait<0>();
  hopper::pin(sums);
  release_stage(previous, work, place);
}

// ---- the whole ----

template <int kTokens, bool kGeglu>
__device__ __forceinline__ void multiply_and_write(unsigned char* shared, Ring<kTokens> ring,
                                                   const Work& work, const Place& place) {
  wait_for_previous();  // it may read what is written here
  float sums[kTokens / 2];
  if (work.split == 1) {
    for (int item = place.first_item; item < work.items; item += place.item_stride) {
      multiply<kTokens>(sums, ring, work, place);
      write_sums<kTokens, kGeglu>(sums, shared, work, find_tile<kTokens>(work, place, item));
    }
    return;
  }
  // Of a cluster that divides K, there is one for each item.
  multiply<kTokens>(sums, ring, work, place);
  leave_sums<kTokens>(sums, shared);
  hopper::cluster_sync();
  const Tile tile = find_tile<kTokens>(work, place, place.first_item);
  if (work.split == 2) add_slices<kTokens, kGeglu, 2>(shared, work, place, tile);
  if (work.split == 4) add_slices<kTokens, kGeglu, 4>(shared, work, place, tile);
  if (work.split == 8) add_slices<kTokens, kGeglu, 8>(shared, work, place, tile);
}

template <int kTokens, bool kGeglu>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_kernel(const __grid_constant__ CUtensorMap weight_map,
                    const __grid_constant__ CUtensorMap token_map, const Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  let_next_start();
  extern __shared__ unsigned char allocated[];
  unsigned char* shared = allocated + (1024 - hopper::shared_address(allocated) % 1024) % 1024;
  const Place place = find_place(work);
  Ring<kTokens> ring{hopper::shared_address(shared)};
  if (threadIdx.x == kMultipliers) {
    hopper::prefetch_map(&weight_map);
    hopper::prefetch_map(&token_map);
    Ring<kTokens>(ring).init_barriers(work.share);
  }
  __syncwarp();
  if (work.share * work.split > 1) {
    hopper::cluster_meet();  // others arrive at these barriers and copy to this block
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kMultipliers) {
    multiply_and_write<kTokens, kGeglu>(shared, ring, work, place);
  } else {
    if (threadIdx.x == kMultipliers) {
      // Weights that more than one tile of tokens needs should stay until the others have come for them.
      const auto keep_weights = work.token_tiles == 1 ? hopper::Keep::kFirstOut : hopper::Keep::kNormal;
      copy_operands<kTokens>({&weight_map, &token_map, hopper::cache_policy(keep_weights),
                              hopper::cache_policy(hopper::Keep::kLastOut)},
                             ring, work, place);
    }
    __syncwarp();
    if (work.split > 1) hopper::cluster_sync();  // the one in multiply_and_write()
  }
  if (work.split > 1) hopper::cluster_meet();  // others may still read this block's sums
#endif
}

}  // namespace gemmad::cuda::hopper_gemm_kernel
