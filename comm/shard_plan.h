// Which rank holds what of the model, and who works with whom. Pure arithmetic: every rank comes to the same
// plan from the same input.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "config/daemon_config.h"
#include "config/model_config.h"

namespace gemmad {

/// The model cannot be laid out like that. what() names the numbers and what would do.
class ShardError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// How the model is to be laid out. Keys of the config of the same names.
struct ShardSettings {
  Mode mode = Mode::kBatchParallel;
  Strategy strategy = Strategy::kTensor;    // of kSharded
  std::int64_t ranks_per_replica = 0;       // of kSharded; 0: all that encode
  std::vector<std::int64_t> encoder_ranks;  // empty: all

  bool operator==(const ShardSettings&) const = default;
};

ShardSettings shard_settings(const DaemonConfig& config);

/// [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  bool operator==(const Range&) const = default;
};

/// What one rank holds of a replica: of each of its layers, the rows (columns, for o and down) of its heads
/// and its feed-forward blocks; the norms whole. The whole model is the shard that holds all of each.
struct Shard {
  int rank = 0;
  Range layers;
  Range heads;       // query heads; may be empty
  Range kv_heads;    // those that the query heads read; some other shard may hold them too
  Range ffn_blocks;  // of ffn_block() feed-forward columns each

  bool operator==(const Shard&) const = default;
};

/// One whole model on its shards: slices of every layer (kTensor; one shard alone is that too), or runs of
/// layers in order (kLayer).
struct Replica {
  Strategy strategy = Strategy::kTensor;
  std::vector<Shard> shards;
};

/// The two ways to spread jobs: their prompts over the replicas, or each of their layers over all ranks.
enum class Cut : std::uint8_t { kDeal, kSplit };

struct ShardPlan {
  ShardSettings settings;
  std::vector<Replica> replicas;  // prompts are dealt to these
  /// Of kAdaptive with more than one encoder: the slices of the replicas as one replica over all of them.
  std::optional<Replica> split;

  /// What `rank` holds of the model; null where it holds nothing.
  const Shard* shard_of(int rank) const;
  /// The replicas that work by `cut`.
  std::span<const Replica> replicas_of(Cut cut) const;
};

/// Feed-forward columns that stay together: gate and up rows are stored by such blocks. The largest power of
/// two that divides F and leaves 64 blocks, 64 at most; 1 for a small F.
std::int64_t ffn_block(const TextConfig& model);

/// Throws ShardError for an encoder rank that is not among `num_ranks` or is named twice, ranks that do not
/// divide into replicas, more tensor shards than the model has feed-forward blocks.
///
/// kTensor over n ranks: K heads go to n <= K ranks in runs that differ by one at most; to more ranks, each K
/// head goes to a run of ranks, among which its query heads are dealt; ranks beyond the H heads hold
/// feed-forward blocks alone. kLayer: runs of layers whose bytes differ as little as whole layers allow;
/// ranks beyond the L layers hold nothing.
ShardPlan make_shard_plan(const TextConfig& model, const ShardSettings& settings, int num_ranks);

/// The whole model as a shard of `rank`.
Shard whole_model(const TextConfig& model, int rank);

/// Elements of the weights that a shard holds, the embedding table left out: it stays in the node's memory,
/// one for all. `replicated`: of these, what every shard of the same layers holds (norms, and K heads that
/// are held more than once).
struct ShardSize {
  std::int64_t elements = 0;
  std::int64_t replicated = 0;
};
ShardSize shard_size(const TextConfig& model, const Shard& shard);

/// The ranks that have the hidden state with this index (0 .. L) when `replica` has computed it.
std::vector<int> holders_of_state(const Replica& replica, std::int64_t index);

}  // namespace gemmad
