// The driver's function that describes tensors to the copy engine, found without linking the driver's
// library.
#pragma once

#include <cudaTypedefs.h>

#include "kernels/cuda/check.h"

namespace gemmad::cuda {

/// Throws CudaError where the driver has no such function.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                                &found),
               "cudaGetDriverEntryPointByVersion cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
      throw CudaError(cudaErrorNotSupported, "cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return encode;
}

}  // namespace gemmad::cuda
