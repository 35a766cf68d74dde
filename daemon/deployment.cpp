#include "daemon/deployment.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "comm/batch_plan.h"
#include "daemon/gather.h"
#include "daemon/processor_plan.h"

namespace gemmad {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t kProbeLayers = 4;
// Times the device's efficient_rows(): few, some and many.
constexpr std::int64_t kProbeTimes[CostTable::kPoints] = {1, 4, 16};
constexpr int kProbeRuns = 2;
// Where work is recorded, the first runs of a shape cost more than all later ones; so many come first.
constexpr int kRecordingRuns = 3;

/// One addend of the sums over the slices of a layer.
std::size_t sum_bytes(const DeploymentParts& parts) {
  return static_cast<std::size_t>(parts.ops.padded_rows(parts.max_batch_tokens) * parts.model.hidden_size) *
         size_bytes(parts.ops.compute_dtype());
}

/// Sequences that go through a connector together: two fill a GPU.
constexpr std::int64_t kUnitsAtOnce = 2;

ProcessorLimits processor_limits(const DeploymentParts& parts) {
  return {parts.max_batch_tokens, kUnitsAtOnce, kPaddedLength};
}

/// What a shard of `plan` needs of a processor. Those that make hidden states from the middle on begin behind
/// the state that they are given.
ProcessorShare processor_share(const DeploymentParts& parts, const ShardPlan& plan, const Shard& shard) {
  const std::int64_t first = shard.layers.begin == 0 ? 0 : shard.layers.begin + 1;
  ProcessorShare share{{first, std::max(first, shard.layers.end + 1)}, false};
  for (const Replica& replica : plan.replicas) {
    const std::vector<int> ranks = processor_ranks(replica, parts.model.num_layers);
    share.has_connectors |= std::find(ranks.begin(), ranks.end(), shard.rank) != ranks.end();
  }
  return share;
}

/// The widest row that is delivered.
std::int64_t max_width(const DeploymentParts& parts) {
  std::int64_t width = parts.model.hidden_size;
  if (parts.processor)
    width = std::max({width, parts.processor->video.width(), parts.processor->audio.width()});
  return width;
}

class IgnoringSink final : public HiddenStateSink {
 public:
  void hidden_state(std::int64_t, ConstTensorView, const Moment&, bool) override {}
};

std::vector<int> ranks_of(const Replica& replica) {
  std::vector<int> ranks;
  for (const Shard& shard : replica.shards)
    ranks.push_back(shard.rank);
  return ranks;
}

/// Milliseconds of a pass over `num_tokens` in prompts as long as they may be, the best of a few: others
/// disturb it only for the worse.
double time_pass(TextEncoder& encoder, PartLinks& links, Ops& ops, std::int64_t num_tokens) {
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(num_tokens), 0);
  std::vector<std::int64_t> offsets{0};
  while (offsets.back() < num_tokens)
    offsets.push_back(std::min(num_tokens, offsets.back() + kPaddedLength));
  IgnoringSink sink;
  double best = std::numeric_limits<double>::max();
  const int first_run = ops.records_work() ? -kRecordingRuns : 0;
  for (int run = first_run; run < kProbeRuns; ++run) {
    const auto start = SteadyClock::now();
    encoder.forward({ids, offsets}, links, sink);
    links.wait(ops.stream());
    ops.synchronize(ops.stream());
    const double ms = std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
    if (run >= 0) best = std::min(best, ms);
  }
  return best;
}

}  // namespace

DeviceBytes device_bytes(const ShardPlan& plan, const Shard& shard, const DeploymentParts& parts) {
  const Ops& ops = parts.ops;
  DeviceBytes bytes;
  bytes.weights =
      static_cast<std::uint64_t>(shard_size(parts.model, shard).elements) * size_bytes(ops.compute_dtype());
  // A device that reads no host memory holds the table too.
  if (ops.memory_bytes() && shard.layers.begin == 0) {
    bytes.weights += static_cast<std::uint64_t>(parts.model.vocab_size * parts.model.hidden_size) *
                     size_bytes(ops.compute_dtype());
  }
  bytes.workspace = TextWorkspace::size_bytes(parts.model, activation_widths(parts.model, shard), ops,
                                              parts.max_batch_tokens);
  if (parts.processor) {
    const StateSizes states = state_sizes(parts.model);
    const ProcessorShare share = processor_share(parts, plan, shard);
    bytes.processor = ProcessorWeights::size_bytes(*parts.processor, states, share, ops.compute_dtype()) +
                      ProcessorWorkspace::size_bytes(*parts.processor, states, share.has_connectors, ops,
                                                     processor_limits(parts));
  }
  bytes.scratch = ops.scratch_bytes();
  // Of each member two addends and a sum.
  const bool sliced = plan.split || (plan.replicas.front().strategy == Strategy::kTensor &&
                                     plan.replicas.front().shards.size() > 1);
  if (sliced && parts.links.peer_sums) bytes.sums = 3 * sum_bytes(parts);
  if (parts.device_results != nullptr) {
    const int rank = parts.bootstrap.info().rank;
    const RouteTable routes(plan, parts.model.num_layers, parts.places, parts.processor.has_value());
    for (const Route& route : routes.routes()) {
      if (std::find(route.receivers.begin(), route.receivers.end(), rank) != route.receivers.end())
        bytes.delivery += DeviceDelivery::staging_bytes(max_width(parts), ops);
    }
  }
  return bytes;
}

void Deployment::close() {
  for (auto* part : {&deal_, &split_}) {
    if (*part) (*part)->links.close();
  }
}

Deployment::Deployment(const DeploymentParts& parts, ShardPlan plan, const DeploymentSources& sources,
                       const LoadProgress& progress)
    : parts_(parts),
      plan_(std::move(plan)),
      routes_(plan_, parts.model.num_layers, parts.places, parts.processor.has_value()) {
  shard_.rank = -1;
  if (const Shard* shard = plan_.shard_of(parts.bootstrap.info().rank); shard != nullptr) {
    shard_ = *shard;
    load(sources, progress);
  }
}

void Deployment::load(const DeploymentSources& sources, const LoadProgress& progress) {
  Ops& ops = parts_.ops;
  const StateSizes states = state_sizes(parts_.model);
  const ProcessorShare share = processor_share(parts_, plan_, shard_);
  std::uint64_t processor_bytes = 0;
  if (parts_.processor)
    processor_bytes = ProcessorWeights::size_bytes(*parts_.processor, states, share, ops.compute_dtype());
  std::uint64_t text_bytes = 0;
  weights_ = load_text_weights(sources.text, parts_.model, shard_, ops,
                               [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                                 text_bytes = total_bytes;
                                 if (progress) progress(done_bytes, total_bytes + processor_bytes);
                               });
  workspace_.emplace(parts_.model, activation_widths(parts_.model, shard_), ops, parts_.max_batch_tokens);
  if (!parts_.processor) return;
  ProcessorWeights weights =
      load_processor_weights(*sources.processor, *parts_.processor, states, share, ops, parts_.num_threads,
                             [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                               if (progress) progress(text_bytes + done_bytes, text_bytes + total_bytes);
                             });
  processor_workspace_.emplace(*parts_.processor, states, share.has_connectors, ops,
                               processor_limits(parts_));
  processor_.emplace(*parts_.processor, states, std::move(weights), *processor_workspace_, ops);
}

void Deployment::connect() {
  if (weights_) {
    add_part(Cut::kDeal, *weights_, deal_);
    if (const Shard* slice = place_in(Cut::kSplit).shard; slice != nullptr)
      add_part(Cut::kSplit, slice_of(*weights_, parts_.model, *slice), split_);
  }
  const int rank = parts_.bootstrap.info().rank;
  if (parts_.device_results != nullptr) {
    delivery_ = std::make_unique<DeviceDelivery>(routes_, *parts_.device_results, max_width(parts_), rank,
                                                 parts_.exchange_timeout, parts_.ops);
    return;
  }
  for (const Route& route : routes_.routes()) {
    const std::vector<int> members = route.members();
    const bool takes_part = std::find(members.begin(), members.end(), rank) != members.end();
    route_groups_.push_back(takes_part ? parts_.results.group(members, parts_.exchange_timeout) : nullptr);
  }
}

Deployment::Place Deployment::place_in(Cut cut) const {
  const auto replicas = plan_.replicas_of(cut);
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    for (const Shard& shard : replicas[replica].shards) {
      if (shard.rank == parts_.bootstrap.info().rank) return {static_cast<int>(replica), &shard};
    }
  }
  return {};
}

void Deployment::add_part(Cut cut, TextWeights weights, std::optional<Part>& part) {
  const Place place = place_in(cut);
  const Replica& replica = plan_.replicas_of(cut)[static_cast<std::size_t>(place.replica)];
  const bool alone = replica.shards.size() == 1;
  const bool staged = !alone && replica.strategy == Strategy::kLayer;
  const bool sliced = !alone && replica.strategy == Strategy::kTensor;
  const int number = static_cast<int>(place.shard - replica.shards.data());
  const auto group = [&](bool wanted, std::chrono::milliseconds timeout) {
    return wanted ? parts_.links.group(ranks_of(replica), timeout) : nullptr;
  };
  std::unique_ptr<PeerSums> peers;
  if (sliced && parts_.links.peer_sums) {
    peers = parts_.links.peer_sums(ranks_of(replica), sum_bytes(parts_), parts_.exchange_timeout);
  }
  part.emplace(
      Part{GroupLinks(group(sliced, parts_.exchange_timeout), std::move(peers),
                      group(staged, parts_.compute_timeout), number, static_cast<int>(replica.shards.size())),
           TextEncoder(parts_.model, std::move(weights), *workspace_, parts_.ops)});
  const std::vector<int> finishing = processor_ranks(replica, parts_.model.num_layers);
  const int rank = parts_.bootstrap.info().rank;
  const bool finishes = std::find(finishing.begin(), finishing.end(), rank) != finishing.end();
  const bool takes_part = finishes || place.shard->layers.end < parts_.model.num_layers;
  in_hand_.push_back({cut, place.replica, &part->encoder, &part->links,
                      processor_ && takes_part ? &*processor_ : nullptr,
                      finishes ? rank : finishing.front()});
}

void Deployment::tune() {
  parts_.ops.load_tuning();
  for (auto* part : {&deal_, &split_}) {
    if (*part) (*part)->encoder.tune(parts_.ops.padded_rows(parts_.max_batch_tokens));
  }
  if (const auto problem = parts_.ops.save_tuning())
    spdlog::warn("what was measured of products is not kept for the next start: {}", *problem);
}

void Deployment::measure_costs() {
  if (!plan_.split) return;
  CostTable mine;
  for (std::size_t i = 0; i < CostTable::kPoints; ++i)
    mine.tokens[i] = std::min(kProbeTimes[i] * parts_.ops.efficient_rows(), parts_.max_batch_tokens);
  if (split_) {
    // All layers where they take milliseconds, so that what comes once a pass is not counted with each.
    const std::int64_t num_layers =
        parts_.ops.records_work() ? parts_.model.num_layers : std::min(kProbeLayers, parts_.model.num_layers);
    const double scale = static_cast<double>(parts_.model.num_layers) / static_cast<double>(num_layers);
    TextEncoder whole(parts_.model, first_layers(deal_->encoder.weights(), num_layers), *workspace_,
                      parts_.ops);
    TextEncoder slice(parts_.model, first_layers(split_->encoder.weights(), num_layers), *workspace_,
                      parts_.ops);
    for (std::size_t i = 0; i < CostTable::kPoints; ++i) {
      mine.whole_ms[i] = scale * time_pass(whole, deal_->links, parts_.ops, mine.tokens[i]);
      mine.split_ms[i] = scale * time_pass(slice, split_->links, parts_.ops, mine.tokens[i]);
    }
  }
  costs_ = mine;
  for (const CostTable& theirs : gather(parts_.bootstrap, mine, parts_.compute_timeout))
    costs_ = slower(*costs_, theirs);
}

std::vector<JobPlan> Deployment::plan_jobs(std::span<const Job> jobs) const {
  const auto cut_of = [&](const Job& job, Cut unless_preferred) {
    if (!plan_.split || job.prefer == Preference::kNone) return unless_preferred;
    return job.prefer == Preference::kSplit ? Cut::kSplit : Cut::kDeal;
  };
  const auto tokens_of = [&](const auto& wanted) {
    std::vector<std::int64_t> tokens;
    for (const Job& job : jobs) {
      if (!wanted(job)) continue;
      for (const JobPrompt& prompt : job.prompts)
        tokens.push_back(prompt.num_computed_tokens());
    }
    return tokens;
  };
  const int num_replicas = static_cast<int>(plan_.replicas.size());
  // Jobs without a preference run together, so one choice is made for all of them.
  Cut cheaper = Cut::kDeal;
  if (costs_) {
    const auto free = tokens_of([](const Job& job) { return job.prefer == Preference::kNone; });
    cheaper = cheaper_cut(*costs_, free, num_replicas);
  }
  const std::vector<int> dealt = deal_prompts(
      tokens_of([&](const Job& job) { return cut_of(job, cheaper) == Cut::kDeal; }), num_replicas);

  std::vector<JobPlan> plans;
  auto next = dealt.begin();
  for (const Job& job : jobs) {
    JobPlan plan{cut_of(job, cheaper), std::vector<int>(job.prompts.size(), 0), {}};
    if (plan.cut == Cut::kDeal) {
      for (int& replica : plan.replicas)
        replica = *next++;
    }
    plans.push_back(std::move(plan));
  }
  if (parts_.processor) deal_processing(jobs, plan_, *parts_.processor, state_sizes(parts_.model), plans);
  return plans;
}

CutInHand Deployment::in_hand(Cut cut) const {
  CutInHand result{cut,      plan_.replicas_of(cut),      parts_.max_batch_tokens, nullptr, delivery_.get(),
                   &routes_, parts_.bootstrap.info().rank};
  for (const PartInHand& part : in_hand_) {
    if (part.cut == cut) result.part = &part;
  }
  return result;
}

std::optional<GenerationPart> Deployment::generation_part() {
  const Place place = place_in(Cut::kDeal);
  if (place.shard == nullptr || place.shard->layers.empty()) return std::nullopt;
  const std::vector<Shard>& shards = plan_.replicas[static_cast<std::size_t>(place.replica)].shards;
  TextHead::Place in_replica{deal_->links.slices(), 0, 1};
  if (place.shard->layers.size() < parts_.model.num_layers) {
    in_replica.stage = static_cast<int>(place.shard - shards.data());
    in_replica.num_stages = static_cast<int>(std::count_if(
        shards.begin(), shards.end(), [](const Shard& shard) { return !shard.layers.empty(); }));
  }
  return GenerationPart{place.replica, *weights_, *workspace_, deal_->links, in_replica};
}

void Deployment::deliver(std::size_t route, TensorView bytes) {
  if (route_groups_[route]) route_groups_[route]->broadcast(bytes, 0, parts_.ops.stream());
}

std::uint64_t Deployment::source_bytes() const {
  return (weights_ ? weights_->memory.source_bytes : 0) + (processor_ ? processor_->weights().memory.source_bytes : 0);
}

std::uint64_t Deployment::replicated_bytes() const {
  if (!deal_) return 0;
  return static_cast<std::uint64_t>(shard_size(parts_.model, shard_).replicated) *
         size_bytes(parts_.ops.compute_dtype());
}

std::chrono::steady_clock::duration Deployment::time_in_links() const {
  std::chrono::steady_clock::duration time{};
  for (const auto* part : {&deal_, &split_}) {
    if (*part) time += (*part)->links.time_in_links();
  }
  return time;
}

}  // namespace gemmad
