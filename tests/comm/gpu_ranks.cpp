#include "tests/comm/gpu_ranks.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include "comm/bootstrap_mpi.h"
#include "comm/nccl_collectives.h"
#include "kernels/cuda/cuda_ops.h"

namespace gemmad {
namespace {

int skip(const Bootstrap& bootstrap, const std::string& why) {
  if (bootstrap.info().rank == 0) std::printf("SKIPPED: %s\n", why.c_str());
  return kSkipStatus;
}

/// The same answer on all ranks.
bool there_are_gpus_for_all(Bootstrap& bootstrap) {
  const auto enough = static_cast<std::byte>(num_cuda_devices() >= bootstrap.info().ranks_on_node);
  const std::vector<std::byte> all = bootstrap.all_gather(std::span(&enough, 1), kGpuTimeout);
  return std::all_of(all.begin(), all.end(), [](std::byte answer) { return answer == std::byte{1}; });
}

std::string gpus_needed(int count) {
  if (count == 1) return "needs a GPU";
  return "needs " + (count == 2 ? "two" : std::to_string(count)) + " GPUs";
}

}  // namespace

int check_on_gpus(const std::function<void(const GpuRank&)>& check) {
  const std::unique_ptr<Bootstrap> bootstrap = make_mpi_bootstrap();
  std::unique_ptr<Ops> ops;  // outlives the abort: to give it back waits for the device, perhaps for good
  try {
    if (!there_are_gpus_for_all(*bootstrap))
      return skip(*bootstrap, gpus_needed(bootstrap->info().ranks_on_node));
    ops = make_cuda_ops({.device = bootstrap->info().rank_on_node, .num_threads = 1, .plan_folder = {}});
    const Transport transport = nccl_transport(*bootstrap);
    std::vector<int> ranks(static_cast<std::size_t>(bootstrap->info().num_ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    check({*bootstrap, *ops, transport, std::move(ranks)});
    // So that none says that all is well before all have come this far.
    bootstrap->all_gather({}, kGpuTimeout);
    if (bootstrap->info().rank == 0)
      std::printf("%d ranks: all as it must be\n", bootstrap->info().num_ranks);
    return 0;
  } catch (const Skipped& reason) {
    return skip(*bootstrap, reason.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", bootstrap->info().rank, error.what());
    bootstrap->abort(1);
  }
  return 1;
}

}  // namespace gemmad
