// The model as it lies over the ranks in one mode: this rank's part of it, and its ways to the other ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "comm/route.h"
#include "comm/shard_plan.h"
#include "config/model_config.h"
#include "config/processor_config.h"
#include "daemon/batch_forward.h"
#include "daemon/cost_model.h"
#include "daemon/group_links.h"
#include "daemon/job.h"
#include "daemon/model/generation/text_head.h"
#include "daemon/model/ltx/embeddings_processor.h"
#include "daemon/model/text_encoder.h"
#include "daemon/model/text_weights.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// What a deployment is made with. All must outlive it.
struct DeploymentParts {
  Bootstrap& bootstrap;
  Ops& ops;
  const TextConfig& model;
  const Transport& links;    // between parts of the model, on the device's memory
  const Transport& results;  // of results between segments, on the host's memory
  const Transport* device_results =
      nullptr;  // of results on the device's memory; null where it is the host's
  const Places& places;
  std::optional<ProcessorConfig> processor;  // nothing where there is none
  int num_threads = 1;                       // of the host, for loading
  std::int64_t max_batch_tokens = 8192;
  std::chrono::milliseconds exchange_timeout{60'000};  // answers that need no computing
  std::chrono::milliseconds compute_timeout{600'000};  // another rank's forward pass, or its load from memory
};

/// Bytes of device memory that a shard takes, before it is loaded.
struct DeviceBytes {
  std::uint64_t weights = 0;
  std::uint64_t workspace = 0;
  std::uint64_t processor = 0;  // of embeddings: its weights and the memory that it works in
  std::uint64_t sums = 0;       // shared with the ranks that hold other slices
  std::uint64_t delivery = 0;   // what others have computed, on its way to the host
  std::uint64_t scratch = 0;
  std::uint64_t total() const { return weights + workspace + processor + sums + delivery + scratch; }
};
DeviceBytes device_bytes(const ShardPlan& plan, const Shard& shard, const DeploymentParts& parts);

/// What this rank continues sequences with, in its replica. Nothing is owned.
struct GenerationPart {
  int replica = 0;
  const TextWeights& weights;
  TextWorkspace& workspace;
  PartLinks& links;
  TextHead::Place place;
};

/// Where a deployment's weights come from.
struct DeploymentSources {
  const WeightSource& text;
  const WeightSource* processor = nullptr;  // null where there is none
};

/// Made anew for every mode and after every sleep. Used by the engine thread alone.
class Deployment {
 public:
  /// Loads this rank's part. Every rank makes the same deployment, and connects it when all have. Throws what
  /// load_text_weights and load_processor_weights throw, std::bad_alloc.
  Deployment(const DeploymentParts& parts, ShardPlan plan, const DeploymentSources& sources,
             const LoadProgress& progress);

  /// Collective, once, before all else: makes the ways to the other ranks. Throws BootstrapError.
  void connect();
  /// Collective, before it goes: gives back what ranks share. Not where a rank was lost: there it stays until
  /// the process ends. Throws BootstrapError.
  void close();

  /// Finds the fastest products for this rank's parts. Not collective. Blocks, the first time for seconds.
  void tune();
  /// Collective, after every rank has made it: measures what adaptive mode chooses by. Throws BootstrapError.
  void measure_costs();
  /// What was measured of the same plan before.
  void use_costs(const CostTable& costs) { costs_ = costs; }

  /// How the jobs are spread. The same on every rank.
  std::vector<JobPlan> plan_jobs(std::span<const Job> jobs) const;

  /// How this rank computes under `cut`. Valid until close().
  CutInHand in_hand(Cut cut) const;
  /// The same for generation, which deals sequences to replicas. Nothing where this rank has no layers.
  std::optional<GenerationPart> generation_part();
  /// True when results travel while they are computed (DeviceDelivery), and not afterwards (deliver).
  bool delivers_as_computed() const { return delivery_ != nullptr; }
  /// Hands `bytes` of the segment, which the route's writers have written, to its receivers: their place in
  /// the receivers' segments is filled. Every rank calls it alike; those that take no part do nothing.
  void deliver(std::size_t route, TensorView bytes);

  const ShardPlan& plan() const { return plan_; }
  const RouteTable& routes() const { return routes_; }
  const std::optional<CostTable>& costs() const { return costs_; }
  /// What this rank holds; its `rank` is -1 where it only receives.
  const Shard& shard() const { return shard_; }
  std::uint64_t weight_bytes() const { return weights_ ? weights_->size_bytes() : 0; }
  std::uint64_t replicated_bytes() const;
  /// What this rank takes of its device by plan.
  DeviceBytes bytes() const { return weights_ ? device_bytes(plan_, shard_, parts_) : DeviceBytes{}; }
  std::uint64_t workspace_bytes() const { return workspace_ ? workspace_->size_bytes() : 0; }
  std::uint64_t source_bytes() const;
  /// Time that this rank has spent with the others in forward passes so far.
  std::chrono::steady_clock::duration time_in_links() const;

 private:
  struct Part {
    GroupLinks links;
    TextEncoder encoder;  // goes first: its recordings use the links
  };
  struct Place {
    int replica = -1;
    const Shard* shard = nullptr;
  };

  Place place_in(Cut cut) const;
  void load(const DeploymentSources& sources, const LoadProgress& progress);
  void add_part(Cut cut, TextWeights weights, std::optional<Part>& part);

  DeploymentParts parts_;
  ShardPlan plan_;
  RouteTable routes_;
  Shard shard_;
  std::optional<TextWeights> weights_;  // all that this rank holds
  std::optional<TextWorkspace> workspace_;
  std::optional<ProcessorWorkspace> processor_workspace_;
  std::optional<EmbeddingsProcessor> processor_;  // of all cuts
  std::optional<Part> deal_;
  std::optional<Part> split_;
  std::vector<PartInHand> in_hand_;  // by cut, as far as this rank takes part
  std::unique_ptr<DeviceDelivery> delivery_;
  std::vector<std::unique_ptr<Collectives>> route_groups_;  // by route; empty where this rank takes no part
  std::optional<CostTable> costs_;
};

}  // namespace gemmad
