// What kernels do that sum over the devices of one node: meet, and read all addends. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/base/peer_addends.h"
#include "kernels/cuda/bf16_vector.h"

namespace gemmad::cuda {

__device__ __forceinline__ void store_release(std::uint32_t* place, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* place) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}

/// Waits until this block has met the same block of every other member (kernels/base/peer_addends.h). After
/// it the block may read what the others' earlier kernels wrote. To be called after wait_for_previous(), by
/// all threads, at least as many as there are members.
///
/// Visibility: when wait_for_previous() returns, the writes of this stream's earlier kernels happen before
/// what each thread does next. A release is cumulative: it hands over all that happens before it, not only
/// its own thread's writes, here at the scope of the system. The acquire on the other side, and the barrier
/// of the block behind it, take it over for all of its threads.
///
/// Progress: block b waits for blocks b alone. These are started in the same order everywhere and no others
/// hold the device up: the grid is small enough for one wave, and what starts early on its tail is resident
/// only once all of its blocks are.
__device__ __forceinline__ void meet_peers(const PeerAddends& peers) {
  const unsigned block = blockIdx.x;
  const unsigned member = threadIdx.x;
  const std::uint32_t epoch = peers.epochs[block] + 1;
  if (member < static_cast<unsigned>(peers.num_peers) && member != static_cast<unsigned>(peers.own)) {
    store_release(peers.signals[member] + peers.own * PeerAddends::kMaxBlocks + block, epoch);
    const std::uint32_t* answer = peers.signals[peers.own] + member * PeerAddends::kMaxBlocks + block;
    // The difference, so that counters may wrap around. A member may be one meeting ahead.
    while (static_cast<std::int32_t>(load_acquire(answer) - epoch) < 0) {
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) peers.epochs[block] = epoch;
}

/// The sum of all addends' vectors `index`, member after member.
__device__ __forceinline__ void sum_vectors(const PeerAddends& peers, std::int64_t index,
                                            float (&sum)[kVectorSize]) {
  constexpr int kAtOnce = 4;  // loads under way
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i)
    sum[i] = 0;
#pragma unroll
  for (int first = 0; first < PeerAddends::kMaxPeers; first += kAtOnce) {
    if (first >= peers.num_peers) break;
    uint4 packed[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i < peers.num_peers) packed[i] = load_vector(peers.addends[first + i], index);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= peers.num_peers) break;
      float values[kVectorSize];
      unpack(packed[i], values);
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        sum[j] += values[j];
    }
  }
}

}  // namespace gemmad::cuda
