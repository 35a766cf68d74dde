#include "daemon/batch_runner.h"

#include <algorithm>
#include <array>

#include "comm/batch_plan.h"
#include "daemon/gather.h"

namespace gemmad {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// How a rank stands to a job, mildest first: the worst over the ranks counts for all.
enum class Verdict : std::uint8_t { kReserved, kNoSpace, kNameInUse, kTooLarge, kInternal };

Verdict verdict_of(ReserveVerdict reserved) {
  switch (reserved) {
    case ReserveVerdict::kReserved:
      return Verdict::kReserved;
    case ReserveVerdict::kNoSpace:
      return Verdict::kNoSpace;
    case ReserveVerdict::kTooLarge:
      return Verdict::kTooLarge;
    case ReserveVerdict::kNameInUse:
      return Verdict::kNameInUse;
  }
  return Verdict::kInternal;
}

JobFailure failure_of(Verdict verdict, const std::string& name, std::uint64_t size_bytes,
                      std::uint64_t segment_bytes) {
  const std::string sizes =
      std::to_string(size_bytes) + " bytes in segments of " + std::to_string(segment_bytes);
  switch (verdict) {
    case Verdict::kNoSpace:
      return {"buffers_exhausted", "readers hold the space that this result needs: " + sizes +
                                       "; release results, or raise segment_mib"};
    case Verdict::kTooLarge:
      return {"result_too_large", "this result can never fit: " + sizes +
                                      "; ask for fewer prompts or layers, or raise segment_mib"};
    case Verdict::kNameInUse:
      return {"name_in_use", "a result named '" + name + "' still waits for its readers"};
    case Verdict::kReserved:
    case Verdict::kInternal:
      break;
  }
  return {"internal", "a rank could not reserve space"};
}

double ms_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

}  // namespace

struct BatchRunner::Reserved {
  const Job* job = nullptr;
  std::vector<int> owners;
  JobLayout layout;
  Verdict verdict = Verdict::kInternal;  // this rank's, then everybody's
  std::string error;                     // of the forward pass, on whichever rank

  bool runs() const { return verdict == Verdict::kReserved && error.empty(); }
};

BatchRunner::BatchRunner(Bootstrap& bootstrap, Collectives& collectives, TextEncoder& encoder, Ops& ops,
                         ResultStore& store, Timeouts timeouts)
    : bootstrap_(bootstrap),
      collectives_(collectives),
      encoder_(encoder),
      ops_(ops),
      store_(store),
      timeouts_(timeouts),
      facts_{encoder.config().num_layers, encoder.config().hidden_size, ops.compute_dtype()} {}

BatchReport BatchRunner::run(const Batch& batch) {
  for (const FailureNotice& failure : batch.failures) {
    store_.fail(failure.id, failure.name, {failure.code, failure.message});
  }
  BatchReport report;
  if (batch.jobs.empty()) {
    report.ranks = exchange_status();
    return report;
  }

  std::vector<Reserved> jobs = reserve(batch);
  exchange_verdicts(jobs);

  const auto compute_start = SteadyClock::now();
  const std::string error = compute(jobs);
  for (Reserved& job : jobs)
    job.error = error;
  report.compute_ms = ms_since(compute_start);

  const auto deliver_start = SteadyClock::now();
  deliver(jobs);
  settle(jobs, report);
  report.ranks = exchange_status();
  report.deliver_ms = ms_since(deliver_start);
  return report;
}

std::vector<RankStatus> BatchRunner::exchange_status() {
  return gather(bootstrap_, rank_status(store_, tokens_), timeouts_.exchange);
}

std::vector<BatchRunner::Reserved> BatchRunner::reserve(const Batch& batch) {
  std::vector<std::int64_t> tokens;
  for (const Job& job : batch.jobs) {
    for (const JobPrompt& prompt : job.prompts)
      tokens.push_back(static_cast<std::int64_t>(prompt.ids.size()));
  }
  const int num_ranks = bootstrap_.info().num_ranks;
  const std::vector<int> owners = deal_prompts(tokens, num_ranks);

  std::vector<Reserved> jobs;
  auto first_owner = owners.begin();
  for (const Job& job : batch.jobs) {
    Reserved reserved;
    reserved.job = &job;
    reserved.owners.assign(first_owner, first_owner + static_cast<std::ptrdiff_t>(job.prompts.size()));
    first_owner += static_cast<std::ptrdiff_t>(job.prompts.size());
    reserved.layout = lay_out(job, reserved.owners, num_ranks, facts_);
    reserved.verdict = verdict_of(store_.reserve(job.id, job.name, reserved.layout.size_bytes));
    jobs.push_back(std::move(reserved));
  }
  return jobs;
}

void BatchRunner::exchange_verdicts(std::vector<Reserved>& jobs) {
  std::vector<Verdict> mine;
  for (const Reserved& job : jobs)
    mine.push_back(job.verdict);
  const std::vector<std::byte> all =
      bootstrap_.all_gather(std::as_bytes(std::span(mine)), timeouts_.exchange);
  bool space_ran_out = false;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    for (std::size_t rank = 0; rank * jobs.size() < all.size(); ++rank) {
      jobs[j].verdict = std::max(jobs[j].verdict, static_cast<Verdict>(all[rank * jobs.size() + j]));
    }
    // Jobs behind one that waits for space wait too: a small one must not take what a large one waits for.
    if (space_ran_out && jobs[j].verdict == Verdict::kReserved) jobs[j].verdict = Verdict::kNoSpace;
    space_ran_out = space_ran_out || jobs[j].verdict == Verdict::kNoSpace;
  }
}

std::string BatchRunner::compute(const std::vector<Reserved>& jobs) {
  struct Report {
    std::array<char, 512> error{};
  } mine;
  try {
    std::vector<JobInHand> in_hand;
    for (const Reserved& job : jobs) {
      if (job.runs()) in_hand.push_back({job.job, &job.layout, job.owners, store_.block(job.job->id)});
    }
    tokens_ +=
        static_cast<std::uint64_t>(compute_own_prompts(in_hand, bootstrap_.info().rank, encoder_, ops_));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    mine.error = fixed_text<sizeof mine.error>(text.empty() ? "unknown error" : text);
  }
  const std::vector<Report> all = gather(bootstrap_, mine, timeouts_.compute);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].error[0] != '\0') return "rank " + std::to_string(rank) + ": " + all[rank].error.data();
  }
  return {};
}

void BatchRunner::deliver(const std::vector<Reserved>& jobs) {
  for (const Reserved& job : jobs) {
    if (!job.runs()) continue;
    const std::span<std::byte> block = store_.block(job.job->id);
    for (std::size_t rank = 0; rank < job.layout.ranks.size(); ++rank) {
      const OwnedRange& range = job.layout.ranks[rank];
      if (range.begin == range.end) continue;
      const Shape shape{static_cast<std::int64_t>(range.end - range.begin)};
      collectives_.broadcast({block.data() + range.begin, DType::kU8, shape}, static_cast<int>(rank));
    }
  }
}

namespace {

PromptResult prompt_result(const JobPrompt& prompt, const std::vector<PlacedTensor>& placed,
                           std::uint64_t block_offset, DType dtype) {
  PromptResult result;
  result.ok = prompt.ok();
  result.error_code = prompt.error_code;
  result.error_message = prompt.error_message;
  if (!result.ok) return result;
  result.num_tokens = static_cast<std::int64_t>(prompt.ids.size());
  result.padded_length = kPaddedLength;
  result.truncated = prompt.truncated;
  for (const PlacedTensor& tensor : placed) {
    result.tensors.push_back(
        {tensor.name, dtype, tensor.shape, block_offset + tensor.offset, tensor.size_bytes});
  }
  return result;
}

}  // namespace

void BatchRunner::settle(std::vector<Reserved>& jobs, BatchReport& report) {
  const std::uint64_t segment_bytes = store_.stats().segment_bytes;
  for (const Reserved& reserved : jobs) {
    const Job& job = *reserved.job;
    JobOutcome outcome;
    outcome.size_bytes = reserved.layout.size_bytes;
    if (reserved.runs()) {
      outcome.kind = JobOutcome::Kind::kPublished;
      const std::uint64_t offset = store_.block_offset(job.id);
      for (std::size_t p = 0; p < job.prompts.size(); ++p) {
        outcome.prompts.push_back(
            prompt_result(job.prompts[p], reserved.layout.prompts[p], offset, facts_.dtype));
      }
      store_.publish(job.id, outcome.prompts);
    } else if (reserved.verdict == Verdict::kNoSpace) {
      outcome.kind = JobOutcome::Kind::kNoSpace;
      outcome.failure = failure_of(reserved.verdict, job.name, outcome.size_bytes, segment_bytes);
      store_.release_reservation(job.id);
    } else {
      outcome.failure = reserved.verdict == Verdict::kReserved
                            ? JobFailure{"internal", reserved.error}
                            : failure_of(reserved.verdict, job.name, outcome.size_bytes, segment_bytes);
      // A refused name belongs to another result, whose readers must not hear of this failure.
      store_.fail(job.id, reserved.verdict == Verdict::kNameInUse ? "" : job.name, outcome.failure);
    }
    report.jobs.push_back(std::move(outcome));
  }
}

}  // namespace gemmad
