// The operations on the host's processor: fp32, GEMM from OpenBLAS where the build has it.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace gemmad {

/// Ops that compute on `num_threads` threads, the calling one included; the others sleep between calls.
/// Tables are read where they lie, in host memory. Sets OpenBLAS, process-wide, to one thread a call: the
/// pool here splits the work. Tensors live in `memory`, which is of the host; by default HostMemory. Throws
/// std::invalid_argument for num_threads outside [1, 1024], std::system_error when a thread cannot be
/// started.
std::unique_ptr<Ops> make_cpu_ops(int num_threads, std::shared_ptr<Memory> memory = nullptr);

}  // namespace gemmad
