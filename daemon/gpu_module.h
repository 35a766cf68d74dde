// The part of the daemon that needs CUDA and NCCL: a library of its own beside the program, loaded only where
// ranks compute on GPUs. The libraries below it take a quarter of a second and 200 MB just to be there.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "kernels/ops.h"

namespace gemmad {

/// What the library offers, from its function of the name kGpuModuleEntry.
struct GpuModule {
  /// GPUs that this process can use; 0 without a driver.
  int (*num_devices)();
  /// As make_cuda_ops does.
  std::unique_ptr<Ops> (*make_ops)(int device, int num_threads, const std::filesystem::path& plan_folder);
  /// Groups on GPUs of the current device, for parts of a model, with peer_sums.
  Transport (*links)(Bootstrap& bootstrap);
  /// The same for results: they leave most of the GPU to what computes beside.
  Transport (*results)(Bootstrap& bootstrap);
};

inline constexpr char kGpuModuleEntry[] = "gemmad_gpu_module";
using GpuModuleEntry = const GpuModule* (*)();

}  // namespace gemmad
