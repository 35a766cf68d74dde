#include "daemon/device.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "daemon/agreement.h"
#include "daemon/gather.h"
#include "kernels/cpu/cpu_ops.h"
#ifdef GEMMAD_CUDA
#include "comm/nccl_collectives.h"
#include "comm/peer_memory.h"
#include "kernels/cuda/cuda_ops.h"
#endif

namespace gemmad {

namespace {

// Bringing up a GPU may take this much longer on one rank than on another.
constexpr std::chrono::minutes kTimeout{10};
// Enough for the bus to the host; what computes meanwhile wants the rest.
[[maybe_unused]] constexpr int kDeliveryCtas = 4;
// Copying weights to a GPU is bound by its bus from here on.
[[maybe_unused]] constexpr int kMostCopyThreads = 16;

#ifdef GEMMAD_CUDA
int num_gpus() {
  return num_cuda_devices();
}

RankDevice make_gpu(const DaemonConfig& config, Bootstrap& bootstrap) {
  const RankInfo& info = bootstrap.info();
  RankDevice device;
  agree(bootstrap, kTimeout, [&] {
    const int gpus = num_gpus();
    if (gpus < info.ranks_on_node) {
      throw std::runtime_error("this node has " + std::to_string(gpus) + " GPUs for " +
                               std::to_string(info.ranks_on_node) +
                               " ranks: start at most one rank for each GPU, or set device to cpu");
    }
    device.ops = make_cuda_ops(
        {info.rank_on_node, std::min(compute_threads(config, info), kMostCopyThreads), cache_folder()});
  });
  if (info.num_ranks == 1) {
    device.links = one_rank_transport();
    return device;
  }
  device.links = nccl_transport(bootstrap);
  device.results = nccl_transport(bootstrap, {kDeliveryCtas});
  device.links.peer_sums = [&bootstrap](const std::vector<int>& ranks, std::size_t buffer_bytes,
                                        std::chrono::milliseconds timeout) -> std::unique_ptr<PeerSums> {
    if (!peers_can_share(bootstrap, ranks, timeout)) return nullptr;
    return std::make_unique<PeerBuffers>(bootstrap, ranks, buffer_bytes, timeout);
  };
  return device;
}
#else
int num_gpus() {
  return 0;
}

RankDevice make_gpu(const DaemonConfig&, Bootstrap& bootstrap) {
  agree(bootstrap, kTimeout, [] {
    throw std::runtime_error(
        "device is cuda, but this build has no CUDA: build where nvcc, cuBLASLt and NCCL "
        "are found, or set device to cpu");
  });
  return {};
}
#endif

/// A GPU for every rank, as every rank sees it.
bool all_have_gpus(Bootstrap& bootstrap) {
  const bool enough = num_gpus() >= bootstrap.info().ranks_on_node;
  const auto all = gather(bootstrap, static_cast<std::uint8_t>(enough), kTimeout);
  return std::all_of(all.begin(), all.end(), [](std::uint8_t has) { return has != 0; });
}

}  // namespace

RankDevice make_device(const DaemonConfig& config, Bootstrap& bootstrap) {
  const bool wants_gpu = config.device == DeviceChoice::kCuda ||
                         (config.device == DeviceChoice::kAuto && all_have_gpus(bootstrap));
  if (wants_gpu) return make_gpu(config, bootstrap);
  RankDevice device;
  agree(bootstrap, kTimeout, [&] { device.ops = make_cpu_ops(compute_threads(config, bootstrap.info())); });
  device.links = bootstrap.info().num_ranks == 1 ? one_rank_transport() : host_transport(bootstrap);
  return device;
}

int compute_threads(const DaemonConfig& config, const RankInfo& info) {
  if (config.compute_threads > 0) return static_cast<int>(config.compute_threads);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // A launcher may have bound this rank to some cores already.
  cpu_set_t allowed;
  const int bound = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : cores;
  return std::max(1, std::min(bound, cores / info.ranks_on_node));
}

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::filesystem::path(cache) / "gemmad";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".cache" / "gemmad";
  return {};
}

}  // namespace gemmad
