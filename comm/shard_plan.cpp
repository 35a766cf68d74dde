#include "comm/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace gemmad {

namespace {

/// Part `index` of [0, size) cut into `parts` that differ by one at most, the longer ones first.
Range fair_part(std::int64_t size, std::int64_t parts, std::int64_t index) {
  const std::int64_t shorter = size / parts;
  const std::int64_t longer = size % parts;
  const std::int64_t begin = index * shorter + std::min(index, longer);
  return {begin, begin + shorter + (index < longer ? 1 : 0)};
}

Range shifted(Range range, std::int64_t by) {
  return {range.begin + by, range.end + by};
}

std::vector<int> encoder_ranks(const ShardSettings& settings, int num_ranks) {
  std::vector<int> ranks;
  if (settings.encoder_ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(num_ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  for (const std::int64_t rank : settings.encoder_ranks) {
    if (rank < 0 || rank >= num_ranks) {
      throw ShardError("encoder_ranks names rank " + std::to_string(rank) + "; there are ranks 0 to " +
                       std::to_string(num_ranks - 1));
    }
    ranks.push_back(static_cast<int>(rank));
  }
  std::sort(ranks.begin(), ranks.end());
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) throw ShardError("encoder_ranks names rank " + std::to_string(*twice) + " twice");
  return ranks;
}

/// The query heads and their K heads of shard `index` of `num_shards`.
void cut_heads(const TextConfig& model, std::int64_t num_shards, std::int64_t index, Shard& shard) {
  const std::int64_t queries_per_kv = model.num_heads / model.num_kv_heads;
  // Ranks beyond the heads hold none.
  const std::int64_t with_heads = std::min(num_shards, model.num_heads);
  if (index >= with_heads) return;
  if (with_heads <= model.num_kv_heads) {
    shard.kv_heads = fair_part(model.num_kv_heads, with_heads, index);
    shard.heads = {shard.kv_heads.begin * queries_per_kv, shard.kv_heads.end * queries_per_kv};
    return;
  }
  std::int64_t kv_head = 0;
  Range sharers = fair_part(with_heads, model.num_kv_heads, kv_head);
  while (!sharers.contains(index))
    sharers = fair_part(with_heads, model.num_kv_heads, ++kv_head);
  shard.kv_heads = {kv_head, kv_head + 1};
  shard.heads =
      shifted(fair_part(queries_per_kv, sharers.size(), index - sharers.begin), kv_head * queries_per_kv);
}

Replica tensor_replica(const TextConfig& model, std::span<const int> ranks) {
  const auto num_shards = static_cast<std::int64_t>(ranks.size());
  const std::int64_t num_blocks = model.intermediate_size / ffn_block(model);
  if (num_shards > num_blocks) {
    throw ShardError("strategy tensor over " + std::to_string(num_shards) + " ranks: the model has " +
                     std::to_string(num_blocks) + " feed-forward blocks of " +
                     std::to_string(ffn_block(model)) +
                     " columns, so that many ranks at most; set ranks_per_replica, or use strategy layer");
  }
  Replica replica{Strategy::kTensor, {}};
  for (std::int64_t i = 0; i < num_shards; ++i) {
    Shard shard;
    shard.rank = ranks[static_cast<std::size_t>(i)];
    shard.layers = {0, model.num_layers};
    shard.ffn_blocks = fair_part(num_blocks, num_shards, i);
    cut_heads(model, num_shards, i, shard);
    replica.shards.push_back(shard);
  }
  return replica;
}

/// All layers of Gemma 3 have the same bytes, so that runs of as many layers are runs of as many bytes.
Replica layer_replica(const TextConfig& model, std::span<const int> ranks) {
  Replica replica{Strategy::kLayer, {}};
  const std::int64_t num_stages = std::min(static_cast<std::int64_t>(ranks.size()), model.num_layers);
  for (std::int64_t i = 0; i < num_stages; ++i) {
    Shard shard = whole_model(model, ranks[static_cast<std::size_t>(i)]);
    shard.layers = fair_part(model.num_layers, num_stages, i);
    replica.shards.push_back(shard);
  }
  return replica;
}

std::int64_t replica_size(const ShardSettings& settings, std::size_t num_encoders) {
  const auto encoders = static_cast<std::int64_t>(num_encoders);
  if (settings.mode != Mode::kSharded) return 1;
  if (settings.ranks_per_replica == 0) return encoders;
  if (encoders % settings.ranks_per_replica != 0) {
    throw ShardError("ranks_per_replica is " + std::to_string(settings.ranks_per_replica) +
                     ", which does not divide the " + std::to_string(encoders) + " ranks that encode");
  }
  return settings.ranks_per_replica;
}

}  // namespace

ShardSettings shard_settings(const DaemonConfig& config) {
  return {config.mode, config.strategy, config.ranks_per_replica, config.encoder_ranks};
}

const Shard* ShardPlan::shard_of(int rank) const {
  for (const Replica& replica : replicas) {
    for (const Shard& shard : replica.shards) {
      if (shard.rank == rank) return &shard;
    }
  }
  return nullptr;
}

std::span<const Replica> ShardPlan::replicas_of(Cut cut) const {
  if (cut == Cut::kDeal) return replicas;
  return split ? std::span(&*split, 1) : std::span<const Replica>();
}

std::int64_t ffn_block(const TextConfig& model) {
  constexpr std::int64_t kMost = 64;
  constexpr std::int64_t kLeastBlocks = 64;
  std::int64_t block = 1;
  while (2 * block <= kMost && model.intermediate_size % (2 * block) == 0 &&
         model.intermediate_size / (2 * block) >= kLeastBlocks) {
    block *= 2;
  }
  return block;
}

ShardPlan make_shard_plan(const TextConfig& model, const ShardSettings& settings, int num_ranks) {
  const std::vector<int> encoders = encoder_ranks(settings, num_ranks);
  const auto size = static_cast<std::size_t>(replica_size(settings, encoders.size()));
  const bool by_layer = settings.mode == Mode::kSharded && settings.strategy == Strategy::kLayer;
  ShardPlan plan;
  plan.settings = settings;
  for (std::size_t first = 0; first < encoders.size(); first += size) {
    const auto ranks = std::span(encoders).subspan(first, size);
    plan.replicas.push_back(by_layer ? layer_replica(model, ranks) : tensor_replica(model, ranks));
  }
  if (settings.mode == Mode::kAdaptive && encoders.size() > 1) plan.split = tensor_replica(model, encoders);
  return plan;
}

Shard whole_model(const TextConfig& model, int rank) {
  return {rank,
          {0, model.num_layers},
          {0, model.num_heads},
          {0, model.num_kv_heads},
          {0, model.intermediate_size / ffn_block(model)}};
}

ShardSize shard_size(const TextConfig& model, const Shard& shard) {
  const std::int64_t d = model.hidden_size;
  const std::int64_t s = model.head_dim;
  const std::int64_t norms = 4 * d + 2 * s;
  const std::int64_t kv = 2 * shard.kv_heads.size() * s * d;
  const std::int64_t own =
      2 * shard.heads.size() * s * d + 3 * shard.ffn_blocks.size() * ffn_block(model) * d;
  const bool last = shard.layers.end == model.num_layers;
  // A K head that this shard's query heads do not use up is on another shard too.
  const bool shares_kv = shard.heads.size() < shard.kv_heads.size() * (model.num_heads / model.num_kv_heads);
  ShardSize size;
  size.elements = shard.layers.size() * (norms + kv + own) + (last ? d : 0);
  size.replicated = shard.layers.size() * (norms + (shares_kv ? kv : 0)) + (last ? d : 0);
  return size;
}

std::vector<int> holders_of_state(const Replica& replica, std::int64_t index) {
  std::vector<int> ranks;
  for (const Shard& shard : replica.shards) {
    const bool holds = index == 0 ? shard.layers.begin == 0 : shard.layers.contains(index - 1);
    if (holds) ranks.push_back(shard.rank);
  }
  return ranks;
}

}  // namespace gemmad
