// Runs a batch on this rank in step with the others: plan, reserve, verdict, forward, deliver, publish.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/result_store.h"
#include "comm/route.h"
#include "comm/segment.h"
#include "daemon/deployment.h"
#include "daemon/job.h"
#include "daemon/job_layout.h"
#include "kernels/ops.h"

namespace gemmad {

/// What became of one job; the same on every rank, but for the offsets in `prompts`.
struct JobOutcome {
  enum class Kind { kPublished, kFailed, kNoSpace /* try again later */ };
  Kind kind = Kind::kFailed;
  JobFailure failure;                 // of kFailed, and of kNoSpace should it be the last try
  std::vector<PromptResult> prompts;  // of kPublished
  std::uint64_t size_bytes = 0;       // of its block
  Cut cut = Cut::kDeal;
};

struct BatchReport {
  std::vector<JobOutcome> jobs;
  double compute_ms = 0;  // until the slowest rank was done
  double busy_ms = 0;     // of all ranks together, waiting for each other left out
  double deliver_ms = 0;
};

/// Where this rank's results go. `store` is null where another rank of the place publishes.
struct Output {
  const Places& places;
  Segment& segment;
  ResultStore* store = nullptr;
};

/// Used by the engine thread alone.
class BatchRunner {
 public:
  struct Timeouts {
    std::chrono::milliseconds exchange{60'000};  // answers that need no computing
    std::chrono::milliseconds compute{600'000};  // the slowest rank's forward pass
  };

  /// What `output` names, and the others, must outlive the runner.
  BatchRunner(Bootstrap& bootstrap, Ops& ops, const Output& output, const OutputFacts& facts,
              Timeouts timeouts)
      : bootstrap_(bootstrap), ops_(ops), output_(output), facts_(facts), timeouts_(timeouts) {}

  /// Collective. A job that some rank refuses, or that a rank which computes alone fails to compute, fails
  /// alike on all ranks; the runner is as good as before. Throws BootstrapError when a rank is lost, or fails
  /// where others of its replica wait for it, DeviceError when this rank's device failed: fatal.
  BatchReport run(const Batch& batch, Deployment& deployment);

  /// Lets go of results that jobs with is_kept left. Not collective.
  void forget(const std::vector<JobId>& jobs);

  /// Tells the readers of jobs that will not run. Not collective.
  void tell_failures(const std::vector<FailureNotice>& failures);

  /// Computed by this rank, or by its replica together with it, so far.
  std::uint64_t num_tokens() const { return tokens_; }

 private:
  struct Reserved;

  std::vector<Reserved> reserve(const Batch& batch, const Deployment& deployment);
  void exchange_verdicts(std::vector<Reserved>& jobs);
  void compute(std::vector<Reserved>& jobs, Deployment& deployment, BatchReport& report);
  void compute_cut(Cut cut, std::vector<Reserved>& jobs, Deployment& deployment, BatchReport& report);
  void deliver(const std::vector<Reserved>& jobs, Deployment& deployment);
  void settle(const std::vector<Reserved>& jobs, BatchReport& report);
  void publish(const Reserved& job, std::vector<PromptResult>& prompts);
  std::span<std::byte> block_of(const Reserved& job) const;

  Bootstrap& bootstrap_;
  Ops& ops_;
  Output output_;
  OutputFacts facts_;
  Timeouts timeouts_;
  std::uint64_t tokens_ = 0;
};

}  // namespace gemmad
