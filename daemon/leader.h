// Rank 0's engine loop: takes what waits, has all ranks do it, hands over what became of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/bootstrap.h"
#include "daemon/announcement.h"
#include "daemon/completion.h"
#include "daemon/engine.h"
#include "daemon/generation_driver.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/rank_status.h"
#include "daemon/result_directory.h"

namespace gemmad {

/// All must outlive the leader.
struct LeaderParts {
  Bootstrap& bootstrap;
  Engine& engine;
  JobQueue& queue;
  CompletionSink& sink;
  StatusBoard& status;
  Metrics& metrics;
  Enhancements* enhancements = nullptr;  // null where nothing can be continued
  std::function<void()> alive;  // called with every heartbeat and batch; what it throws ends the loop
};

/// Runs until the queue is closed and empty, then tells the sink and sends all ranks home. On the engine
/// thread of rank 0. Throws BootstrapError when a rank is lost: fatal.
class Leader {
 public:
  /// `facts`: how the daemon stands at the start.
  Leader(LeaderParts parts, DaemonFacts facts);

  void run();

 private:
  void announce(Announcement announcement);
  void work_on(JobQueue::Work work);
  void execute(std::vector<Order> orders);
  void execute(Order order);
  bool generates() const { return generation_ && generation_->is_active(); }
  void complete(Order& order) const;
  void sleep_when_idle();
  void tell_changes();
  void run_batch(JobQueue::Work work);
  void hand_over(JobQueue::Work work, BatchReport report, Clock::time_point started);
  void beat();
  void hear(std::vector<RankStatus> ranks);
  void count(const BatchReport& report, std::int64_t prompts, std::int64_t tokens);

  // Results to come back to.
  void look_up(Job& job);
  void remember(const Job& job, const JobOutcome& outcome);
  void make_room(std::uint64_t size_bytes);
  void reconfigure(const DaemonConfig& config);
  void forget(const std::vector<JobId>& jobs) { forget_.insert(forget_.end(), jobs.begin(), jobs.end()); }
  void count_look_ups(const Job& job);

  LeaderParts parts_;
  DaemonFacts facts_;
  ResultDirectory directory_;
  std::optional<GenerationDriver> generation_;  // where something can be continued
  std::vector<Order> postponed_;                // until all enhancements have ended
  std::vector<JobId> forget_;                   // that the next announcement tells
  std::uint64_t told_version_ = 0;
  Clock::time_point idle_since_ = Clock::now();
  Clock::time_point heard_at_{};  // from all ranks
};

}  // namespace gemmad
