// Hopper's asynchronous machinery as functions: barriers that count bytes (mbarrier), the tensor copy engine
// (TMA), clusters, and stores to shared memory (products: hopper_wgmma.h). Thin: each is one or two
// instructions of the PTX manual. For .cu files; the bodies assemble for sm_90a only. Shared memory is named
// by 32-bit addresses, as these instructions take them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace gemmad::cuda::hopper {

using SharedAddress = std::uint32_t;

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// ---- clusters ----

/// The two halves of cluster_sync(): reads of other blocks' shared memory end before the first, that memory
/// goes away after the second.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

/// All threads of all blocks of the cluster, whole warps. Orders their shared memory accesses.
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/// cluster_sync() without the order: only that all have come. Barriers made known by publish_barriers() are
/// known after it.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ SharedAddress in_block(SharedAddress address, int rank) {
  SharedAddress mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// Four floats at an address that in_block() gave.
__device__ __forceinline__ float4 load_from_cluster(SharedAddress address) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// ---- barriers ----

/// A phase of the barrier ends when `count` arrivals and all bytes expected in it have come.
__device__ __forceinline__ void barrier_init(SharedAddress barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/// By the thread that initialised barriers, before the synchronisation after which others use them: makes
/// them known to the cluster and to the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives at the barrier of another block (or this one), at an address that in_block() gave. Orders no
/// ordinary memory accesses among the blocks (a release for the cluster is a fence of the whole device):
/// enough to say that wgmma, when it was waited for, has read something.
__device__ __forceinline__ void arrive_in_cluster(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and adds `bytes` to those that the present phase waits for. Copies that end before this is called
/// count too: the phase cannot end without this arrival.
__device__ __forceinline__ void arrive_expecting(SharedAddress barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Waits for the end of the phase of that parity: phases count from 0, and the phase before the first, of
/// parity 1, has ended.
__device__ __forceinline__ void wait(SharedAddress barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// ---- the copy engine ----

/// What L2 should do with the lines of a copy.
enum class Keep { kFirstOut, kNormal, kLastOut };

__device__ __forceinline__ std::uint64_t cache_policy(Keep keep) {
  std::uint64_t policy;
  if (keep == Keep::kFirstOut) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else if (keep == Keep::kNormal) {
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies the map's box at (column, row) to `to`; its bytes (those beyond the matrix, zeros, too) count at
/// `barrier`.
__device__ __forceinline__ void copy_box(SharedAddress to, const CUtensorMap* map, int column, int row,
                                         SharedAddress barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

/// copy_box() of a map of three dimensions, from (column, head, row), kept by L2 as it likes.
__device__ __forceinline__ void copy_box(SharedAddress to, const CUtensorMap* map, int column, int head,
                                         int row, SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(column), "r"(head), "r"(row), "r"(barrier)
      : "memory");
}

/// copy_box() to the same place in every block of the cluster whose rank's bit is set in `blocks`, counted at
/// the same barrier of each.
__device__ __forceinline__ void copy_box_to(std::uint16_t blocks, SharedAddress to, const CUtensorMap* map,
                                            int column, int row, SharedAddress barrier,
                                            std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks), "l"(policy)
      : "memory");
}

/// copy_box() of a map of five dimensions, from (column, 0, 0, 0, block).
__device__ __forceinline__ void copy_deep_box(SharedAddress to, const CUtensorMap* map, int column, int block,
                                              SharedAddress barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(column), "r"(0), "r"(block), "r"(barrier), "l"(policy)
      : "memory");
}

/// Asks for the map's box at (column, row) into L2.
__device__ __forceinline__ void prefetch_box(const CUtensorMap* map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void prefetch_deep_box(const CUtensorMap* map, int column, int block) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %2, %2, %3}];" ::"l"(map),
               "r"(column), "r"(0), "r"(block)
               : "memory");
}

/// Before the synchronisation after which the copy engine reads what this thread has stored.
__device__ __forceinline__ void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Starts to copy `from` to the map's box at (column, row); nothing is written beyond the matrix.
__device__ __forceinline__ void store_box(const CUtensorMap* map, int column, int row, SharedAddress from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}
/// Until what this thread's store_box() calls copy has been read, or also written.
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- stores to shared memory ----

__device__ __forceinline__ void store_shared(SharedAddress to, const float4& value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

/// Two 8 x 8 blocks of 2-byte elements, transposed: lane 4r + c holds the elements (r, 2c) and (r, 2c + 1) of
/// both; lanes 0..7 (8..15) give where columns 0..7 of the first (second) go, 16 bytes each.
__device__ __forceinline__ void store_transposed(SharedAddress to, std::uint32_t first,
                                                 std::uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first),
               "r"(second)
               : "memory");
}

/// The same for four blocks: lanes 8 i to 8 i + 7 give where the columns of block i go.
__device__ __forceinline__ void store_transposed(SharedAddress to, const std::uint32_t (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(blocks[0]), "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

}  // namespace gemmad::cuda::hopper
