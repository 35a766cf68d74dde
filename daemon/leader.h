// Rank 0's engine loop: takes what waits, has all ranks run it, hands over what became of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "comm/bootstrap.h"
#include "daemon/batch_runner.h"
#include "daemon/completion.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/rank_status.h"

namespace gemmad {

struct LeaderSettings {
  std::int64_t batch_tokens = 8192;
  std::chrono::milliseconds heartbeat{1000};
  std::chrono::milliseconds exchange_timeout{60'000};
};

/// All must outlive the leader.
struct LeaderParts {
  Bootstrap& bootstrap;
  BatchRunner& runner;
  JobQueue& queue;
  CompletionSink& sink;
  StatusBoard& status;
  Metrics& metrics;
  std::function<void()> alive;  // called with every heartbeat and batch; what it throws ends the loop
};

/// Runs until the queue is closed and empty, then tells the sink and sends all ranks home. On the engine
/// thread of rank 0. Throws BootstrapError when a rank is lost: fatal.
class Leader {
 public:
  Leader(LeaderParts parts, LeaderSettings settings) : parts_(std::move(parts)), settings_(settings) {}

  void run();

 private:
  void run_batch(JobQueue::Work work);
  void hand_over(JobQueue::Work work, BatchReport report, Clock::time_point started);
  void beat();
  void count(const BatchReport& report, std::int64_t prompts, std::int64_t tokens);

  LeaderParts parts_;
  LeaderSettings settings_;
};

}  // namespace gemmad
