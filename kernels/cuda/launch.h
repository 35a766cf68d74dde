// Starting kernels so that each may begin while the one before it ends (programmatic dependent launch). For
// .cu files.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/check.h"

namespace gemmad::cuda {

/// In a kernel started by launch(): waits until all work before it on the stream is done and its writes are
/// visible. To be called by every thread before it reads what an earlier kernel wrote, or writes what one
/// reads or writes. Before it: only what no kernel of the pass writes (weights, tables).
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Lets the next kernel of the stream be started once every block has called this (or ended), so that its
/// beginning overlaps this kernel's end. It still waits in wait_for_previous() for all of this kernel.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks along x
};

/// Starts `kernel` on `stream`. It must call wait_for_previous(). Throws CudaError that names `name`.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = grid.cluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = grid.cluster > 1 ? 2 : 1;
  check_cuda(
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
      name);
}

}  // namespace gemmad::cuda
