#include "daemon/residency.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "comm/host_memory.h"
#include "comm/shared_memory.h"
#include "daemon/agreement.h"
#include "daemon/gather.h"
#include "daemon/load_progress.h"
#include "daemon/model/weight_cache.h"

namespace gemmad {

namespace {
// Reading the files may take this much longer on one rank than on another. Later changes are copies in
// memory, and have the time of a forward pass.
constexpr std::chrono::minutes kLoadTimeout{30};

/// The same for a device with memory of its own, which nobody shares but other programs. Not collective: what
/// is wrong on one rank is told to all when it loads.
std::string lack_of_device_memory(const ShardPlan& plan, const DeploymentParts& parts,
                                  const DeviceMemoryBytes& memory) {
  const Shard* shard = plan.shard_of(parts.bootstrap.info().rank);
  if (shard == nullptr) return {};
  const DeviceBytes bytes = device_bytes(plan, *shard, parts);
  if (bytes.total() <= memory.free) return {};
  const auto text = [](std::uint64_t count) { return std::to_string(count); };
  return "the GPU must hold " + text(bytes.weights) + " bytes of weights, " + text(bytes.workspace) +
         " of activations (batch_tokens " + std::to_string(parts.max_batch_tokens) + "), " +
         text(bytes.processor) + " of the embeddings processor, " + text(bytes.sums) + " of sums, " +
         text(bytes.delivery) + " of results on their way and " + text(bytes.scratch) + " of scratch, " +
         text(bytes.total()) + " in all, but only " + text(memory.free) + " of its " + text(memory.total) +
         " bytes are free; mode sharded or smaller batch_tokens take less";
}

/// How long the steps of something took, for the log: "weights 0.8 s, links 1.2 s".
class Stages {
 public:
  void end(std::string_view stage) {
    const auto now = std::chrono::steady_clock::now();
    text_ += fmt::format("{}{} {:.1f} s", text_.empty() ? "" : ", ", stage,
                         std::chrono::duration<double>(now - begin_).count());
    begin_ = now;
  }
  const std::string& text() const { return text_; }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string text_;
};

std::uint64_t table_bytes(const TextConfig& model) {
  return static_cast<std::uint64_t>(model.vocab_size * model.hidden_size) * size_bytes(DType::kBF16);
}

/// Collective. Asked before anything is loaded: the kernel would rather kill a process than refuse it memory.
/// With `makes_tensors` no rank shares the embedding table with others. Returns what is wrong, or nothing.
std::string lack_of_memory(const ShardPlan& plan, const DeploymentParts& parts, bool makes_tensors) {
  struct Need {
    std::int64_t node;
    std::uint64_t bytes;
    std::uint64_t available;
  } mine{parts.bootstrap.info().node, 0, 0};
  if (const Shard* shard = plan.shard_of(parts.bootstrap.info().rank); shard != nullptr) {
    const DeviceBytes bytes = device_bytes(plan, *shard, parts);
    mine.bytes = bytes.weights + bytes.processor;
    if (makes_tensors && shard->layers.begin == 0) mine.bytes += table_bytes(parts.model);
  }
  // Every rank has given back by then what it held before.
  parts.bootstrap.all_gather({}, parts.compute_timeout);
  if (const auto device = parts.ops.memory_bytes()) return lack_of_device_memory(plan, parts, *device);
  mine.available = available_memory_bytes();
  std::uint64_t needed = 0;
  std::uint64_t available = mine.available;
  for (const Need& need : gather(parts.bootstrap, mine, parts.exchange_timeout)) {
    if (need.node != mine.node) continue;
    needed += need.bytes;
    available = std::min(available, need.available);
  }
  if (needed <= available) return {};
  return "the weights of this node's ranks take " + std::to_string(needed) + " bytes, only " +
         std::to_string(available) + " bytes of memory are available; mode sharded takes less";
}

}  // namespace

void Residency::load(const Origins& origins, WeightsCache cache, const ShardSettings& settings,
                     const Interrupt& interrupt) {
  const bool is_first = parts_.bootstrap.info().rank == 0;
  std::optional<LoadProgressLine> line;
  if (cache == WeightsCache::kNode) {
    text_source_ = node_copy(*origins.text, "the model", interrupt);
    if (origins.processor)
      processor_source_ = node_copy(*origins.processor, "the embeddings processor", interrupt);
  } else {
    text_source_ = origins.text;
    processor_source_ = origins.processor;
    if (is_first) line.emplace("loading the model");
  }
  deployment_ = make(settings, kLoadTimeout, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    if (line) line->update(done_bytes, total_bytes);
    interrupt();
  });
  settings_ = settings;
}

std::shared_ptr<const WeightSource> Residency::node_copy(const WeightOrigin& origin, const std::string& what,
                                                         const Interrupt& interrupt) {
  const RankInfo& info = parts_.bootstrap.info();
  std::shared_ptr<WeightCache> cache;
  struct Offer {
    int node;
    int rank_on_node;
    SharedMemory::Address address;
  } mine{info.node, info.rank_on_node, {}};
  agree(parts_.bootstrap, kLoadTimeout, [&] {
    if (info.rank_on_node != 0) return;
    cache = std::make_shared<WeightCache>(WeightCache::create(origin));
    mine.address = cache->address();
  });
  const std::vector<Offer> offers = gather(parts_.bootstrap, mine, parts_.exchange_timeout);

  std::optional<LoadProgressLine> line;
  if (info.rank == 0) line.emplace((origin.is_on_disk() ? "reading " : "making ") + what);
  agree(parts_.bootstrap, kLoadTimeout, [&] {
    for (const Offer& offer : offers) {
      if (cache || offer.node != info.node || offer.rank_on_node != 0) continue;
      cache = std::make_shared<WeightCache>(WeightCache::attach(origin, offer.address));
    }
    const auto progress = [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
      if (line) line->update(done_bytes, total_bytes);
      interrupt();
    };
    const std::uint64_t copied = cache->fill(origin, info.rank_on_node, info.ranks_on_node, progress);
    if (origin.is_on_disk()) disk_bytes_ += copied;
  });
  agree(parts_.bootstrap, kLoadTimeout, [&] { cache->seal(); });
  if (line) line->update(cache->size_bytes(), cache->size_bytes());
  return cache;
}

std::unique_ptr<Deployment> Residency::make(const ShardSettings& settings, std::chrono::milliseconds timeout,
                                            const LoadProgress& progress) {
  ShardPlan plan = make_shard_plan(parts_.model, settings, parts_.bootstrap.info().num_ranks);
  const std::string lack = lack_of_memory(plan, parts_, text_source_->makes_tensors());
  std::unique_ptr<Deployment> made;
  agree(parts_.bootstrap, timeout, [&] {
    if (!lack.empty()) throw std::runtime_error(lack);
  });
  Stages stages;
  agree(parts_.bootstrap, timeout, [&] {
    const DeploymentSources sources{*text_source_, processor_source_.get()};
    made = std::make_unique<Deployment>(parts_, std::move(plan), sources, progress);
  });
  stages.end("weights");
  agree(parts_.bootstrap, timeout, [&] { made->connect(); });
  stages.end("links");
  tune(*made);
  stages.end("products");
  if (costs_ && costs_of_ == settings) {
    made->use_costs(*costs_);
  } else {
    made->measure_costs();
    costs_ = made->costs();
    costs_of_ = settings;
  }
  stages.end("costs");
  if (parts_.bootstrap.info().rank == 0)
    spdlog::info("rank 0 holds {:.1f} GB of weights; {}", 1e-9 * static_cast<double>(made->weight_bytes()),
                 stages.text());
  if (text_source_->is_on_disk()) disk_bytes_ += made->source_bytes();
  return made;
}

void Residency::tune(Deployment& deployment) {
  // One rank first: where the others' products are the same, they take the same kernels as it does.
  const bool is_first = parts_.bootstrap.info().rank == 0;
  for (const bool first : {true, false}) {
    agree(parts_.bootstrap, kLoadTimeout, [&] {
      if (is_first == first) deployment.tune();
    });
  }
}

void Residency::deploy(const ShardSettings& settings) {
  agree(parts_.bootstrap, parts_.exchange_timeout, [&] {
    make_shard_plan(parts_.model, settings, parts_.bootstrap.info().num_ranks);
    text_source_->check_readable();
    if (processor_source_) processor_source_->check_readable();
  });
  if (asleep()) {
    settings_ = settings;
    return;
  }
  // The device may not hold two deployments at once.
  give_up_deployment();
  try {
    deployment_ = make(settings, parts_.compute_timeout, {});
    settings_ = settings;
  } catch (const StepFailed& error) {
    const std::string reason = error.what();
    try {
      deployment_ = make(settings_, parts_.compute_timeout, {});
    } catch (const StepFailed& again) {
      throw std::runtime_error("after a switch that failed (" + reason +
                               ") the former mode could not be taken up again: " + again.what());
    }
    throw;
  }
}

void Residency::give_up_deployment() {
  if (deployment_) deployment_->close();
  deployment_ = nullptr;
}

void Residency::sleep() {
  give_up_deployment();
  parts_.ops.drop_scratch();
}

void Residency::wake() {
  if (asleep()) deployment_ = make(settings_, parts_.compute_timeout, {});
}

}  // namespace gemmad
