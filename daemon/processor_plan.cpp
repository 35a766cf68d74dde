#include "daemon/processor_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "daemon/model/text_workspace.h"

namespace gemmad {

namespace {

struct Unit {
  std::size_t job = 0;
  std::size_t prompt = 0;
  Modality modality = Modality::kVideo;
  double cost = 0;
};

using ReplicaId = std::pair<Cut, int>;

}  // namespace

std::vector<int> processor_ranks(const Replica& replica, std::int64_t num_layers) {
  std::vector<int> ranks;
  for (const Shard& shard : replica.shards) {
    if (replica.strategy == Strategy::kTensor || shard.layers.end == num_layers) ranks.push_back(shard.rank);
    // Stages behind the last layer have nothing to do.
    if (replica.strategy == Strategy::kLayer && !ranks.empty()) break;
  }
  return ranks;
}

double processing_cost(const ProcessorConfig& config, const StateSizes& states, Modality modality,
                       std::int64_t num_tokens, bool embeddings, std::int64_t sequence_length) {
  const ConnectorConfig& connector = config.connector(modality);
  const auto width = static_cast<double>(connector.width());
  const double projection = static_cast<double>(num_tokens * states.num_states * states.hidden_size) * width;
  if (!embeddings) return projection;
  const auto rows = static_cast<double>(sequence_length);
  // A block: four products of C columns from C, two of 4C, and attention's two.
  return projection + static_cast<double>(connector.num_layers) * rows * width * (12 * width + 2 * rows);
}

void deal_processing(std::span<const Job> jobs, const ShardPlan& plan, const ProcessorConfig& config,
                     const StateSizes& states, std::span<JobPlan> plans) {
  std::map<ReplicaId, std::vector<Unit>> units;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const OutputSelection& outputs = jobs[j].outputs;
    if (!outputs.needs_processor()) continue;
    plans[j].processors.assign(jobs[j].prompts.size(), {-1, -1});
    for (std::size_t p = 0; p < jobs[j].prompts.size(); ++p) {
      const auto num_tokens = static_cast<std::int64_t>(jobs[j].prompts[p].ids.size());
      for (const Modality modality : kModalities) {
        if (!outputs.wants(modality) || !jobs[j].prompts[p].is_computed()) continue;
        units[{plans[j].cut, plans[j].replicas[p]}].push_back(
            {j, p, modality,
             processing_cost(config, states, modality, num_tokens, outputs.embeddings, kPaddedLength)});
      }
    }
  }
  for (auto& [id, of_replica] : units) {
    const Replica& replica = plan.replicas_of(id.first)[static_cast<std::size_t>(id.second)];
    const std::vector<int> ranks = processor_ranks(replica, states.num_states - 1);
    std::vector<double> loads(ranks.size(), 0);
    std::stable_sort(of_replica.begin(), of_replica.end(),
                     [](const Unit& a, const Unit& b) { return a.cost > b.cost; });
    for (const Unit& unit : of_replica) {
      const auto least = std::min_element(loads.begin(), loads.end()) - loads.begin();
      loads[static_cast<std::size_t>(least)] += unit.cost;
      plans[unit.job].processors[unit.prompt][static_cast<std::size_t>(unit.modality)] =
          ranks[static_cast<std::size_t>(least)];
    }
  }
}

}  // namespace gemmad
