// What a rank's engine thread does on rank 0's word, in step with the other ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/daemon_config.h"
#include "daemon/batch_runner.h"
#include "daemon/generation_host.h"
#include "daemon/order.h"
#include "daemon/rank_status.h"
#include "daemon/residency.h"
#include "daemon/text_publisher.h"

namespace gemmad {

/// All must outlive the engine.
struct EngineParts {
  Bootstrap& bootstrap;
  Residency& residency;
  BatchRunner& runner;
  ResultStore* store = nullptr;  // null where another rank publishes
  const std::atomic<bool>& stop_asked;
  GenerationHost* generation = nullptr;  // null where nothing can be continued
  TextPublisher* texts = nullptr;        // null with it
};

/// What became of a step of generation; the same on every rank.
struct GenerationReport {
  StepReport step;
  std::string failure;  // why there was none: all sequences are gone; else empty
};

/// Every call is collective. Throws BootstrapError when a rank is lost: fatal.
class Engine {
 public:
  /// `identity` tells what this rank is and holds now; it is asked after every change.
  Engine(const EngineParts& parts, const DaemonConfig& config, std::function<RankIdentity()> identity);

  /// Wakes the ranks first where they sleep; when that fails, the jobs fail, and the ranks sleep on.
  BatchReport run(const Batch& batch);
  /// Never leaves things half done: an order that fails changes nothing.
  OrderOutcome execute(const Order& order);

  /// Wakes what must be awake first; when that fails, the report says why, and all is as it was before.
  GenerationReport generate(const GenerationOrder& order);
  void publish(const std::vector<TextNotice>& texts) { parts_.texts->publish(texts); }
  /// See GenerationHost.
  std::uint64_t generation_version() const { return parts_.generation->version(); }
  std::vector<std::int32_t> generation_replicas(int rank) const { return parts_.generation->replicas(rank); }
  /// Gives the memory of generation back, where there is some.
  void rest_generation();

  std::vector<RankStatus> exchange_status();

  /// Before anything else that an announcement asks for. Not collective.
  void forget(const std::vector<JobId>& jobs) { parts_.runner.forget(jobs); }

  bool asleep() const { return parts_.residency.asleep(); }
  /// How things stand since the last change: the same on every rank.
  const std::vector<RankIdentity>& identities() const { return identities_; }
  /// Grows with every change.
  std::uint64_t version() const { return version_; }
  Residency& residency() { return parts_.residency; }
  /// Without a word from rank 0 for so long, it hangs or died.
  std::chrono::milliseconds longest_silence() const { return heartbeat_ + exchange_timeout_; }

 private:
  void tell_identities();
  void reconfigure(const std::string& settings);
  void suspend_generation();

  EngineParts parts_;
  std::chrono::milliseconds exchange_timeout_;
  std::chrono::milliseconds heartbeat_;
  std::function<RankIdentity()> identity_;
  std::vector<RankIdentity> identities_;
  std::uint64_t version_ = 0;
  std::uint64_t told_generation_ = 0;  // version of the generation's memory that identities know
};

}  // namespace gemmad
