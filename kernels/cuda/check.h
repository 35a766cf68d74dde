// The error class of failed CUDA calls, and the check around each of them.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/base/device_error.h"

namespace gemmad::cuda {

/// A CUDA call failed, or work on the device that was put there before. what() names the call and CUDA's
/// reason.
class CudaError : public DeviceError {
 public:
  CudaError(cudaError_t error, const std::string& what_failed)
      : DeviceError(what_failed + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error)),
        error_(error) {}
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

/// Throws CudaError unless `result` is success. `what_failed`: "cudaMalloc", "launch rms_norm".
inline void check_cuda(cudaError_t result, const char* what_failed) {
  if (result != cudaSuccess) throw CudaError(result, what_failed);
}

}  // namespace gemmad::cuda
