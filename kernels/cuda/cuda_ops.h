// The operations on an NVIDIA GPU: bf16, kernels of this folder, plain products from cuBLASLt.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "kernels/ops.h"

namespace gemmad {

struct CudaOptions {
  int device = 0;
  int num_threads = 1;                // that copy and convert weights on their way to the device
  std::filesystem::path plan_folder;  // where tuned products are kept between starts; empty: nowhere
};

/// GPUs that this process can use; 0 without a driver.
int num_cuda_devices();

/// Makes `options.device` this process's current device; only the calling thread may use the result. Throws
/// std::runtime_error for a device that is not there or older than the kernels (compute capability 9.0),
/// CudaError, CublasError.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace gemmad
