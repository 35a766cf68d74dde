// Runs a batch on this rank in step with the others: plan, reserve, verdict, forward, deliver, publish.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "comm/result_store.h"
#include "daemon/batch_forward.h"
#include "daemon/job.h"
#include "daemon/rank_status.h"

namespace gemmad {

/// What became of one job; the same on every rank, but for the offsets in `prompts`.
struct JobOutcome {
  enum class Kind { kPublished, kFailed, kNoSpace /* try again later */ };
  Kind kind = Kind::kFailed;
  JobFailure failure;                 // of kFailed, and of kNoSpace should it be the last try
  std::vector<PromptResult> prompts;  // of kPublished
  std::uint64_t size_bytes = 0;       // of its block
};

struct BatchReport {
  std::vector<JobOutcome> jobs;
  double compute_ms = 0;  // until the slowest rank was done
  double deliver_ms = 0;
  std::vector<RankStatus> ranks;
};

/// Used by the engine thread alone.
class BatchRunner {
 public:
  struct Timeouts {
    std::chrono::milliseconds exchange{60'000};  // answers that need no computing
    std::chrono::milliseconds compute{600'000};  // the slowest rank's forward pass
  };

  /// All must outlive the runner.
  BatchRunner(Bootstrap& bootstrap, Collectives& collectives, TextEncoder& encoder, Ops& ops,
              ResultStore& store, Timeouts timeouts);

  /// Collective. A job that some rank refuses, or that some rank fails to compute, fails alike on all ranks;
  /// the runner is as good as before. Throws BootstrapError when a rank is lost: fatal.
  BatchReport run(const Batch& batch);

  /// The states of all ranks, by rank. Collective.
  std::vector<RankStatus> exchange_status();

 private:
  struct Reserved;

  std::vector<Reserved> reserve(const Batch& batch);
  void exchange_verdicts(std::vector<Reserved>& jobs);
  std::string compute(const std::vector<Reserved>& jobs);
  void deliver(const std::vector<Reserved>& jobs);
  void settle(std::vector<Reserved>& jobs, BatchReport& report);

  Bootstrap& bootstrap_;
  Collectives& collectives_;
  TextEncoder& encoder_;
  Ops& ops_;
  ResultStore& store_;
  Timeouts timeouts_;
  OutputFacts facts_;
  std::uint64_t tokens_ = 0;
};

}  // namespace gemmad
