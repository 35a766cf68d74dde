#include "daemon/device.h"

#include <dlfcn.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "daemon/agreement.h"
#include "daemon/gather.h"
#include "daemon/gpu_module.h"
#include "kernels/cpu/cpu_ops.h"

namespace gemmad {

namespace {

// Bringing up a GPU may take this much longer on one rank than on another.
constexpr std::chrono::minutes kTimeout{10};
// Copying weights to a GPU is bound by its bus from here on.
constexpr int kMostCopyThreads = 16;

/// The library beside this program. It stays loaded: what it made may outlive any owner. Throws
/// std::runtime_error that says what is missing.
const GpuModule& load_gpu_module() {
  const std::filesystem::path file =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libgemmad_gpu.so";
  if (!std::filesystem::exists(file)) {
    throw std::runtime_error("this build has no part for GPUs (" + file.string() +
                             "): build where nvcc, cuBLASLt and NCCL are found, or set device to cpu");
  }
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(std::string("load the part for GPUs: ") + ::dlerror());
  const auto entry = reinterpret_cast<GpuModuleEntry>(::dlsym(library, kGpuModuleEntry));
  if (entry == nullptr) throw std::runtime_error("load the part for GPUs: " + file.string() + " is not one");
  return *entry();
}

/// A look that costs nothing where there is no GPU.
bool node_shows_gpus() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/nvidia0");
}

/// Whether this rank can have a GPU; why not is logged where there are some.
bool has_gpu(const RankInfo& info) {
  if (!node_shows_gpus()) return false;
  try {
    return load_gpu_module().num_devices() >= info.ranks_on_node;
  } catch (const std::exception& error) {
    spdlog::warn("computing on the CPU: {}", error.what());
    return false;
  }
}

RankDevice make_gpu(const DaemonConfig& config, Bootstrap& bootstrap) {
  const RankInfo& info = bootstrap.info();
  RankDevice device;
  const GpuModule* module = nullptr;
  agree(bootstrap, kTimeout, [&] {
    module = &load_gpu_module();
    const int gpus = module->num_devices();
    if (gpus < info.ranks_on_node) {
      throw std::runtime_error("this node has " + std::to_string(gpus) + " GPUs for " +
                               std::to_string(info.ranks_on_node) +
                               " ranks: start at most one rank for each GPU, or set device to cpu");
    }
    const int threads = std::min(compute_threads(config, info), kMostCopyThreads);
    device.ops = module->make_ops(info.rank_on_node, threads, cache_folder());
  });
  if (info.num_ranks == 1) {
    device.links = one_rank_transport();
  } else {
    device.links = module->links(bootstrap);
    device.results = module->results(bootstrap);
  }
  return device;
}

/// A GPU for every rank, as every rank sees it.
bool all_have_gpus(Bootstrap& bootstrap) {
  const auto mine = static_cast<std::uint8_t>(has_gpu(bootstrap.info()));
  const auto all = gather(bootstrap, mine, kTimeout);
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
