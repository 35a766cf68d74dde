// Attention by tiles of queries (attention_tile.h), with a running softmax over blocks of keys. One warp has
// the copy engine bring the blocks; warpgroups multiply them: the scores of the next block are computed while
// the values of this one are added. Two thread blocks of a cluster can share a tile, each with half of its
// keys: then a long sequence's last tiles do not keep the others waiting. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/hopper_wgmma.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warpgroups.h"

namespace gemmad::cuda::warpgroup {

// ---- the warpgroups that multiply ----

// Says that this warp has done with what a slot holds.
template <typename T>
__device__ __forceinline__ void release(const Places<T>& places, const Turn& turn) {
  if (threadIdx.x % 32 == 0) hopper::arrive(places.used(turn.slot));
}

// Adds to scores = queries keys^T what one panel of columns gives.
template <typename T>
__device__ __forceinline__ void start_panel(float (&scores)[T::kKeys / 2], std::uint64_t queries,
                                            std::uint64_t keys, int panel) {
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    hopper::wgmma(scores, queries + panel * T::kLines * 8 + piece * 2,
                  keys + panel * T::kKeys * 8 + piece * 2, panel > 0 || piece > 0);
  }
}

// Starts sums += weights values.
template <typename T>
__device__ __forceinline__ void start_sums(float (&sums)[T::kParts][T::kPartColumns / 2],
                                           const std::uint32_t (&weights)[T::kKeys / 4],
                                           std::uint64_t values) {
#pragma unroll
  for (int step = 0; step < T::kKeys / 16; ++step) {
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      hopper::wgmma_add(sums[part], weights + 4 * step,
                        values + part * (T::kPartColumns / kPanel) * T::kKeys * 8 + step * 128);
    }
  }
  hopper::wgmma_commit();
}

// What no row of the tile sees of a block of values in the cache may be anything, also NaN, which a weight of
// zero would not keep away: it becomes zeros. By all threads that multiply, before they do.
template <typename T>
__device__ __forceinline__ void clear_unseen(const Tile& tile, int block, unsigned values) {
  const int first = tile.first_key + block * T::kKeys;
  if (first >= tile.first_seen && first + T::kKeys <= tile.end_seen) return;
  for (unsigned i = threadIdx.x; i < T::kBlockBytes / 16; i += T::kMultiplying) {
    const int key = first + static_cast<int>(i / 8 % T::kKeys);  // rows of 128 bytes in each panel
    if (key < tile.first_seen || key >= tile.end_seen) hopper::store_shared(values + i * 16, {0, 0, 0, 0});
  }
  hopper::publish_stores();
  hopper::meet<T::kMultiplying>();
}

// Scores of a block become weights.
template <typename T>
__device__ __forceinline__ void weigh(const Problem& problem, const Tile& tile, int block,
                                      float (&scores)[T::kKeys / 2], Lines& lines, float (&keep)[2]) {
  if (tile.needs_mask<T::kKeys>(block)) {
    const int lane_key = static_cast<int>(threadIdx.x % 4) * 2;
    mask_scores(scores, lines, tile.first_key + block * T::kKeys + lane_key);
  }
  soften(scores, problem.scale, lines, keep);
}

// sums and `lines` become those of all blocks of keys of this thread block; there is one at least.
template <typename T>
__device__ __forceinline__ void add_blocks(const Problem& problem, const Tile& tile, const Places<T>& places,
                                           int warpgroup, Lines& lines,
                                           float (&sums)[T::kParts][T::kPartColumns / 2]) {
  const std::uint64_t queries =
      hopper::matrix_descriptor(places.queries + warpgroup % T::kLineGroups * 64 * (2 * kPanel), 0);
  const std::uint64_t keys = hopper::matrix_descriptor(places.blocks, 0);
  const std::uint64_t values = hopper::matrix_descriptor(
      places.blocks + warpgroup / T::kLineGroups * (T::kColumns / kPanel) * T::kKeyPanelBytes,
      T::kKeyPanelBytes);
  Turn turn;
  // With kAlternates. Warpgroup 0 issues first; the first block's products need no leave.
  const auto let_other_issue_after = [&](int block) {
    if constexpr (T::kAlternates) {
      if (warpgroup == 0 ? block > 0 : block + 1 < tile.num_blocks)
        hopper::let_issue<T::kMultiplying>(1 - warpgroup);
    }
  };
  // Stands between weights and the wait for the products that go on meanwhile: ptxas moves such a wait to in
  // front of all that does not need it, and then nothing overlaps, but it does not move it past a loop.
  const auto wait_for_next = [&] {
    Turn next = turn;
    next.advance();
    hopper::wait(places.came(next.slot), next.parity);
  };
  const auto at = [](std::uint64_t tiles, const Turn& turn) {
    return tiles + static_cast<std::uint64_t>(turn.slot) * (T::kBlockBytes / 16);
  };
  float scores[T::kKeys / 2] = {};
  std::uint32_t weights[T::kKeys / 4];
  float keep[2];

  hopper::pin(scores);
#pragma unroll
  for (int panel = 0; panel < T::kPanels; ++panel) {
    hopper::wait(places.first_panel_came(panel), 0);
    hopper::wgmma_fence();
    start_panel<T>(scores, queries, keys, panel);
  }
  hopper::wgmma_commit();
  let_other_issue_after(0);
  hopper::wgmma_wait<0>();
  hopper::pin(scores);
  release(places, turn);
  weigh<T>(problem, tile, 0, scores, lines, keep);
  wait_for_next();
  pack_weights(scores, weights);

#pragma unroll 1
  for (int block = 1; block < tile.num_blocks; ++block) {
    turn.advance();
    const Turn of_keys = turn;
    turn.advance();
    if constexpr (T::kAlternates) hopper::wait_to_issue<T::kMultiplying>(warpgroup);
    hopper::pin(scores);
    hopper::pin(sums);
    hopper::pin(weights);
    hopper::wgmma_fence();
#pragma unroll
    for (int panel = 0; panel < T::kPanels; ++panel)
      start_panel<T>(scores, queries, at(keys, of_keys), panel);
    hopper::wgmma_commit();
    hopper::wait(places.came(turn.slot), turn.parity);
    if constexpr (T::kCached) clear_unseen<T>(tile, block - 1, places.block(turn.slot));
    hopper::wgmma_fence();
    start_sums<T>(sums, weights, at(values, turn));
    let_other_issue_after(block);
    hopper::wgmma_wait<1>();
    hopper::pin(scores);
    release(places, of_keys);
    weigh<T>(problem, tile, block, scores, lines, keep);
    wait_for_next();
    hopper::wgmma_wait<0>();
    hopper::pin(sums);
    release(places, turn);
    scale_sums(sums, keep);
    pack_weights(scores, weights);
  }

  turn.advance();
  if constexpr (T::kCached) clear_unseen<T>(tile, tile.num_blocks - 1, places.block(turn.slot));
  hopper::pin(sums);
  hopper::pin(weights);
  hopper::wgmma_fence();
  start_sums<T>(sums, weights, at(values, turn));
  hopper::wgmma_wait<0>();
  hopper::pin(sums);
}

// This thread's share of a line's sum becomes the whole.
__device__ __forceinline__ void sum_lines(Lines& lines) {
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    lines.sum[line] += __shfl_xor_sync(~0u, lines.sum[line], 1);
    lines.sum[line] += __shfl_xor_sync(~0u, lines.sum[line], 2);
  }
}

// Two thread blocks' sums of the same lines become one: each keeps a half of the columns, block 0 the first,
// and takes the other's sums of them from its shared memory, where the same thread left them.
template <int kThreads, int kCount>
__device__ __forceinline__ void join(const float* sums, Lines& lines, unsigned place, unsigned rank,
                                     float (&half)[kCount]) {
  const unsigned mine = place + threadIdx.x * 16;
  hopper::store_shared(mine, {lines.max[0], lines.max[1], lines.sum[0], lines.sum[1]});
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    half[i] = rank == 0 ? sums[i] : sums[kCount + i];
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    float4 other;
    other.x = rank == 0 ? sums[kCount + i] : sums[i];
    other.y = rank == 0 ? sums[kCount + i + 1] : sums[i + 1];
    other.z = rank == 0 ? sums[kCount + i + 2] : sums[i + 2];
    other.w = rank == 0 ? sums[kCount + i + 3] : sums[i + 3];
    hopper::store_shared(mine + (1 + i / 4) * kThreads * 16, other);
  }
  hopper::cluster_sync();
  const unsigned theirs = hopper::in_block(mine, static_cast<int>(rank ^ 1));
  const float4 state = hopper::load_from_cluster(theirs);
  float keep[2], add[2];
  join_lines(lines, state, keep, add);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 other = hopper::load_from_cluster(theirs + (1 + i / 4) * kThreads * 16);
    half[i] = half[i] * keep[0] + other.x * add[0];
    half[i + 1] = half[i + 1] * keep[0] + other.y * add[0];
    half[i + 2] = half[i + 2] * keep[1] + other.z * add[1];
    half[i + 3] = half[i + 3] * keep[1] + other.w * add[1];
  }
}

// Divides the sums by those of the weights and writes them, by way of `staging` (a tile of kLines rows) so
// that global memory is written 16 bytes a thread. Each warp uses 16 lines of it from `warp_line` and
// 2 kCount columns from `first_column`: no other reads or writes those.
template <typename T, int kCount>
__device__ __forceinline__ void write_sums(const Problem& problem, const Tile& tile, const float* sums,
                                           const Lines& lines, std::uint8_t* staging, int warp_line,
                                           int first_column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float factor[2];
#pragma unroll
  for (int line = 0; line < 2; ++line)  // a line that sees nothing becomes zeros
    factor[line] = lines.sum[line] == 0 ? 0.0f : 1.0f / lines.sum[line];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {  // two columns each: of this line, of that, 8 columns further...
    const unsigned offset =
        tile_offset<T::kLines>(warp_line + lane / 4 + i % 2 * 8, first_column / 8 + i / 2) + lane % 4 * 4;
    *reinterpret_cast<std::uint32_t*>(staging + offset) =
        pack(sums[2 * i] * factor[i % 2], sums[2 * i + 1] * factor[i % 2]);
  }
  __syncwarp();
  constexpr int kWarpChunks = kCount / 4;
#pragma unroll 4
  for (int done = 0; done < 16 * kWarpChunks; done += 32) {
    const int i = done + lane, line = warp_line + i / kWarpChunks, chunk = first_column / 8 + i % kWarpChunks;
    const int tile_row = static_cast<int>(static_cast<unsigned>(line) * problem.inverse >> 16);
    const int row = tile.first_row + tile_row;
    const int head = tile.part * problem.tile_heads + line - tile_row * problem.tile_heads;
    if (tile_row < problem.tile_rows && row < problem.num_rows) {
      *reinterpret_cast<uint4*>(problem.out + (std::int64_t{row} * problem.num_heads + head) * T::kHeadDim +
                                chunk * 8) =
          *reinterpret_cast<const uint4*>(staging + tile_offset<T::kLines>(line, chunk));
    }
  }
}

// What the threads that multiply do.
template <typename T>
__device__ __forceinline__ void multiply(const Problem& problem, const Tile& tile, const Places<T>& places,
                                         int warp, unsigned rank, std::uint8_t* staging) {
  const int warpgroup = warp / 4;
  const int warp_line = warpgroup % T::kLineGroups * 64 + warp % 4 * 16;
  const int first_column = warpgroup / T::kLineGroups * T::kColumns;
  Lines lines = find_lines<T>(problem, tile, warp_line + static_cast<int>(threadIdx.x % 32) / 4);
  float sums[T::kParts][T::kPartColumns / 2] = {};
  wait_for_previous();
  if (tile.num_blocks > 0) add_blocks(problem, tile, places, warpgroup, lines, sums);
  sum_lines(lines);
  hopper::meet<T::kMultiplying>();  // nobody reads queries or blocks any more
  if (problem.ranks == 1) {
    write_sums<T, T::kColumns / 2>(problem, tile, &sums[0][0], lines, staging, warp_line, first_column);
  } else {
    float half[T::kColumns / 4];
    join<T::kMultiplying>(&sums[0][0], lines, places.blocks, rank, half);
    hopper::cluster_arrive();
    write_sums<T, T::kColumns / 4>(problem, tile, half, lines, staging, warp_line,
                                   first_column + static_cast<int>(rank) * (T::kColumns / 2));
    hopper::cluster_wait();  // the other has read what it takes from here
  }
}

template <typename T>
__global__ __launch_bounds__(T::kThreads, 1) void attend(const __grid_constant__ CUtensorMap query_map,
                                                         const __grid_constant__ CUtensorMap key_map,
                                                         const Problem problem) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const Places<T> places(hopper::shared_address(shared));
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);  // so it is seen to be uniform
  const unsigned rank = blockIdx.x % static_cast<unsigned>(problem.ranks);  // as clusters number their blocks
  let_next_start();
  if (threadIdx.x == T::kMultiplying) {
    hopper::prefetch_map(&query_map);
    hopper::prefetch_map(&key_map);
    prepare_barriers(places);
  }
  // No kernel writes what rows see, the host copies it: it may be read while the kernel before this one still
  // runs.
  const Tile tile = find_tile<T>(problem, static_cast<int>(rank));
  __syncthreads();
  if (warp >= T::kMultiplying / 32) {
    if constexpr (T::kMoveRegisters) hopper::drop_registers<24>();
    wait_for_previous();
    if (threadIdx.x == T::kMultiplying && tile.num_blocks > 0)
      copy_all(problem, tile, &query_map, &key_map, places);
    if (problem.ranks > 1) {  // those that multiply meet the other block's so often
      __syncwarp();
      hopper::cluster_sync();
      hopper::cluster_sync();
    }
  } else {
    if constexpr (T::kMoveRegisters) hopper::take_registers<240>();
    multiply<T>(problem, tile, places, warp, rank, shared);
  }
}

}  // namespace gemmad::cuda::warpgroup
