// How the engine hands what it has done to whoever answers for it.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/batch_runner.h"
#include "daemon/daemon_facts.h"
#include "daemon/enhancement.h"
#include "daemon/job.h"
#include "daemon/order.h"

namespace gemmad {

struct CompletedJob {
  JobId id = 0;
  JobOutcome outcome;     // published or failed
  double queue_ms = 0;    // from submission to the start of its batch
  double compute_ms = 0;  // of its batch
  double busy_ms = 0;     // of its batch, of all ranks together
  double deliver_ms = 0;  // of its batch
};

/// Called by rank 0's engine; does not wait.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  /// The jobs' results are readable on every rank.
  virtual void completed(std::vector<CompletedJob> jobs) = 0;
  /// Enhancements have come so far; pieces of one in their order, all before its end.
  virtual void generated(std::vector<GeneratedPiece> pieces) = 0;
  /// An enhancement has ended; where it went well every rank's readers find its text.
  virtual void enhanced(EnhancementOutcome outcome) = 0;
  /// How the daemon stands from now on.
  virtual void changed(DaemonFacts facts) = 0;
  /// The order with this ticket has been carried out, or has changed nothing.
  virtual void ended(std::uint64_t ticket, OrderOutcome outcome) = 0;
  /// The queue is closed and everything in it has ended.
  virtual void drained() = 0;
};

}  // namespace gemmad
