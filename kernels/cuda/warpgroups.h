// Warpgroups of a block that do different things: who has how many registers, and who waits for whom. For .cu
// files, sm_90a.
#pragma once

namespace gemmad::cuda::hopper {

/// A warpgroup gives up registers for others of the block, or takes them, to have so many a thread.
template <int kRegisters>
__device__ __forceinline__ void drop_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

/// All of `kThreads` threads, whole warps, of a block in which others do something else.
template <int kThreads>
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;\n" ::"n"(kThreads) : "memory");
}

/// Groups 0 and 1, half of kThreads threads each, issue products alternately: a group waits until the other
/// lets it. Each let_issue() must be waited for.
template <int kThreads>
__device__ __forceinline__ void wait_to_issue(int group) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(2 + group), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void let_issue(int group) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(2 + group), "n"(kThreads) : "memory");
}

}  // namespace gemmad::cuda::hopper
