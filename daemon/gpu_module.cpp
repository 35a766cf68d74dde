#include "daemon/gpu_module.h"

#include <chrono>
#include <vector>

#include "comm/nccl_collectives.h"
#include "comm/peer_memory.h"
#include "kernels/cuda/cuda_ops.h"

namespace gemmad {

namespace {

// Enough for the bus to the host; what computes meanwhile wants the rest.
constexpr int kResultCtas = 4;

std::unique_ptr<Ops> make_ops(int device, int num_threads, const std::filesystem::path& plan_folder) {
  return make_cuda_ops({device, num_threads, plan_folder});
}

Transport links(Bootstrap& bootstrap) {
  Transport transport = nccl_transport(bootstrap);
  transport.peer_sums = [&bootstrap](const std::vector<int>& ranks, std::size_t buffer_bytes,
                                     std::chrono::milliseconds timeout) -> std::unique_ptr<PeerSums> {
    if (!peers_can_share(bootstrap, ranks, timeout)) return nullptr;
    return std::make_unique<PeerBuffers>(bootstrap, ranks, buffer_bytes, timeout);
  };
  return transport;
}

Transport results(Bootstrap& bootstrap) {
  return nccl_transport(bootstrap, {kResultCtas});
}

constexpr GpuModule kModule{num_cuda_devices, make_ops, links, results};

}  // namespace

extern "C" const GpuModule* gemmad_gpu_module() {
  return &kModule;
}

}  // namespace gemmad
