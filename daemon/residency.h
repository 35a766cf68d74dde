// The model on this rank: where its weights come from, how it is deployed now, awake or asleep.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/daemon_config.h"
#include "daemon/deployment.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

/// Every call is collective: all ranks make the same ones at the same place of their work, and it ends alike
/// on all of them. BootstrapError when a rank is lost: fatal. Used by the engine thread alone.
class Residency {
 public:
  /// Whether loading should go on; throws StepInterrupted when not.
  using Interrupt = std::function<void()>;

  /// Keeps `parts`.
  explicit Residency(const DeploymentParts& parts) : parts_(parts) {}

  /// Where the weights come from first.
  struct Origins {
    std::shared_ptr<const WeightOrigin> text;
    std::shared_ptr<const WeightOrigin> processor;  // of embeddings; null where there is none
  };
  /// Reads or makes the weights (with WeightsCache::kNode into the node's copies, after which `origins` are
  /// not needed any more; otherwise they are kept) and deploys them. Shows progress on rank 0. Throws
  /// StepFailed.
  void load(const Origins& origins, WeightsCache cache, const ShardSettings& settings,
            const Interrupt& interrupt);

  /// Deploys the model in another way, or asleep: will do so. When that fails on any rank, the former way is
  /// taken up again and StepFailed says why. StepFailed too for a way that cannot be, and for files that can
  /// no longer be read, before anything is given up. A failure to take up the former way is fatal:
  /// std::runtime_error.
  void deploy(const ShardSettings& settings);

  /// Gives the device's memory back, that of operations included; nothing happens where that has been done.
  void sleep();
  /// The same, but for the memory of operations, which other models use.
  void rest() { give_up_deployment(); }
  /// Deploys the model again. Throws StepFailed; it is then still asleep.
  void wake();

  bool asleep() const { return deployment_ == nullptr; }
  /// Not while asleep.
  Deployment& deployment() { return *deployment_; }
  const Deployment& deployment() const { return *deployment_; }
  const ShardSettings& settings() const { return settings_; }
  /// Bytes that this rank has read from the model's files so far.
  std::uint64_t disk_bytes() const { return disk_bytes_; }

 private:
  std::shared_ptr<const WeightSource> node_copy(const WeightOrigin& origin, const std::string& what,
                                                const Interrupt& interrupt);
  std::unique_ptr<Deployment> make(const ShardSettings& settings, std::chrono::milliseconds timeout,
                                   const LoadProgress& progress);
  void tune(Deployment& deployment);
  void give_up_deployment();

  DeploymentParts parts_;
  std::shared_ptr<const WeightSource> text_source_;
  std::shared_ptr<const WeightSource> processor_source_;
  ShardSettings settings_;
  std::unique_ptr<Deployment> deployment_;
  std::optional<CostTable> costs_;  // of settings costs_of_, once measured
  ShardSettings costs_of_;
  std::uint64_t disk_bytes_ = 0;
};

}  // namespace gemmad
