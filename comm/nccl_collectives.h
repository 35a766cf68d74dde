// Groups over NCCL, for tensors in the memory of GPUs.
#pragma once

#include "comm/collectives.h"

namespace gemmad {

struct NcclOptions {
  int max_ctas = 0;  // multiprocessors that a call may take from the kernels beside it; 0: NCCL's own choice
};

/// Groups of ranks with one GPU each, the calling thread's current device. `bootstrap` must outlive the
/// groups. Sets NCCL_NVLS_ENABLE=0 in the environment unless it is set: call it before there are threads that
/// read it.
///
/// Streams are cudaStream_t. Calls are asynchronous and return once they are on the stream; wait() is the
/// only one that waits for the GPU. They can be captured in CUDA graphs, in mode ThreadLocal or Relaxed (NCCL
/// works on threads of its own); the first call of its kind and size should not be, since it sets up
/// connections. A graph that holds calls of a group must be destroyed before the group.
///
/// BootstrapError names the call, the ranks and NCCL's reason, or what did not come within the timeout; the
/// group is then aborted and takes no more calls. Destroying a group waits for its work and for the others to
/// destroy theirs, for three seconds at most; it throws nothing.
Transport nccl_transport(Bootstrap& bootstrap, const NcclOptions& options = {});

}  // namespace gemmad
