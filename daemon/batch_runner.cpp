#include "daemon/batch_runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "daemon/gather.h"
#include "daemon/rank_status.h"
#include "daemon/verdict.h"
#include "kernels/base/device_error.h"

namespace gemmad {

namespace {

using SteadyClock = std::chrono::steady_clock;

double ms_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

}  // namespace

struct BatchRunner::Reserved {
  const Job* job = nullptr;
  JobPlan plan;
  JobLayout layout;
  Verdict verdict = Verdict::kInternal;  // this rank's, then everybody's
  std::uint64_t offset = 0;              // of its block in this place's segment
  std::string error;                     // of the forward pass, on whichever rank

  bool runs() const { return verdict == Verdict::kReserved && error.empty(); }
};

BatchReport BatchRunner::run(const Batch& batch, Deployment& deployment) {
  tell_failures(batch.failures);
  BatchReport report;
  if (batch.jobs.empty()) return report;
  std::vector<Reserved> jobs = reserve(batch, deployment);
  exchange_verdicts(jobs);
  for (const Reserved& job : jobs) {
    if (output_.store != nullptr && job.job->is_kept && job.runs()) output_.store->keep(job.job->id);
  }

  const auto compute_start = SteadyClock::now();
  compute(jobs, deployment, report);
  report.compute_ms = ms_since(compute_start);

  const auto deliver_start = SteadyClock::now();
  deliver(jobs, deployment);
  settle(jobs, report);
  report.deliver_ms = ms_since(deliver_start);
  return report;
}

void BatchRunner::forget(const std::vector<JobId>& jobs) {
  if (output_.store == nullptr) return;
  for (const JobId job : jobs)
    output_.store->drop(job);
}

void BatchRunner::tell_failures(const std::vector<FailureNotice>& failures) {
  if (output_.store == nullptr) return;
  for (const FailureNotice& failure : failures)
    output_.store->fail(failure.id, failure.name, {failure.code, failure.message});
}

std::vector<BatchRunner::Reserved> BatchRunner::reserve(const Batch& batch, const Deployment& deployment) {
  const std::int64_t readers_of_place = output_.places.ranks_beside(bootstrap_.info().rank);
  std::vector<JobPlan> plans = deployment.plan_jobs(batch.jobs);
  std::vector<Reserved> jobs;
  for (std::size_t j = 0; j < batch.jobs.size(); ++j) {
    const Job& job = batch.jobs[j];
    Reserved reserved;
    reserved.job = &job;
    reserved.plan = std::move(plans[j]);
    reserved.layout = lay_out(job, reserved.plan, deployment.routes(), facts_);
    reserved.verdict = Verdict::kReserved;
    if (output_.store != nullptr) {
      const std::int64_t num_readers = job.readers > 0 ? job.readers : readers_of_place;
      reserved.verdict =
          verdict_of(output_.store->reserve(job.id, job.name, reserved.layout.size_bytes, num_readers));
      if (reserved.verdict == Verdict::kReserved) reserved.offset = output_.store->block_offset(job.id);
    }
    jobs.push_back(std::move(reserved));
  }
  return jobs;
}

void BatchRunner::exchange_verdicts(std::vector<Reserved>& jobs) {
  struct Record {
    std::uint64_t offset;
    Verdict verdict;
  };
  std::vector<Record> mine(jobs.size(), Record{});
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    mine[j].offset = jobs[j].offset;
    mine[j].verdict = jobs[j].verdict;
  }
  const std::vector<std::byte> bytes =
      bootstrap_.all_gather(std::as_bytes(std::span(mine)), timeouts_.exchange);
  std::vector<Record> all(bytes.size() / sizeof(Record));
  std::memcpy(all.data(), bytes.data(), bytes.size());

  const Places& places = output_.places;
  const auto own_place =
      static_cast<std::size_t>(places.of_rank[static_cast<std::size_t>(bootstrap_.info().rank)]);
  const auto publisher = static_cast<std::size_t>(places.publishers[own_place]);
  bool space_ran_out = false;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].offset = all[publisher * jobs.size() + j].offset;
    for (std::size_t r = j; r < all.size(); r += jobs.size())
      jobs[j].verdict = std::max(jobs[j].verdict, all[r].verdict);
    // Jobs behind one that waits for space wait too: a small one must not take what a large one waits for.
    if (space_ran_out && jobs[j].verdict == Verdict::kReserved) jobs[j].verdict = Verdict::kNoSpace;
    space_ran_out = space_ran_out || jobs[j].verdict == Verdict::kNoSpace;
  }
}

std::span<std::byte> BatchRunner::block_of(const Reserved& job) const {
  return output_.segment.bytes().subspan(job.offset, job.layout.size_bytes);
}

void BatchRunner::compute(std::vector<Reserved>& jobs, Deployment& deployment, BatchReport& report) {
  // One cut after the other, in step: a rank that is done early with its own prompts must not wait in a sum
  // over all ranks for those that are not.
  for (const Cut cut : {Cut::kDeal, Cut::kSplit}) {
    const bool wanted = std::any_of(jobs.begin(), jobs.end(),
                                    [&](const Reserved& job) { return job.runs() && job.plan.cut == cut; });
    if (wanted) compute_cut(cut, jobs, deployment, report);
  }
}

void BatchRunner::compute_cut(Cut cut, std::vector<Reserved>& jobs, Deployment& deployment,
                              BatchReport& report) {
  struct Report {
    double busy_ms = 0;
    std::array<char, 512> error{};
  } mine;
  const auto start = SteadyClock::now();
  const auto links_before = deployment.time_in_links();
  try {
    std::vector<JobInHand> in_hand;
    for (const Reserved& job : jobs) {
      if (job.runs()) in_hand.push_back({job.job, &job.plan, &job.layout, block_of(job)});
    }
    tokens_ += static_cast<std::uint64_t>(gemmad::compute_cut(in_hand, deployment.in_hand(cut), ops_));
  } catch (const BootstrapError&) {
    throw;  // a rank is lost
  } catch (const DeviceError&) {
    throw;  // and so is this one's device: the other ranks will miss it
  } catch (const std::exception& error) {
    const std::string text = error.what();
    // Ranks that wait for this one in the pass will only see that it is out of step.
    spdlog::error("forward pass: {}", text);
    mine.error = fixed_text<sizeof mine.error>(text.empty() ? "unknown error" : text);
  }
  const auto in_links = deployment.time_in_links() - links_before;
  mine.busy_ms = ms_since(start) - std::chrono::duration<double, std::milli>(in_links).count();

  std::string error;
  const std::vector<Report> all = gather(bootstrap_, mine, timeouts_.compute);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    report.busy_ms += all[rank].busy_ms;
    if (error.empty() && all[rank].error[0] != '\0')
      error = "rank " + std::to_string(rank) + ": " + all[rank].error.data();
  }
  for (Reserved& job : jobs) {
    if (job.runs()) job.error = error;
  }
}

void BatchRunner::deliver(const std::vector<Reserved>& jobs, Deployment& deployment) {
  if (deployment.delivers_as_computed()) return;
  for (const Reserved& job : jobs) {
    if (!job.runs()) continue;
    const std::span<std::byte> block = block_of(job);
    for (std::size_t route = 0; route < job.layout.routes.size(); ++route) {
      const RouteRange& range = job.layout.routes[route];
      if (range.begin == range.end) continue;
      const Shape shape{static_cast<std::int64_t>(range.end - range.begin)};
      deployment.deliver(route, {block.data() + range.begin, DType::kU8, shape});
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

/// Prompts whose results are those of earlier ones point into the blocks of these, which then stay as long.
void BatchRunner::publish(const Reserved& reserved, std::vector<PromptResult>& prompts) {
  const Job& job = *reserved.job;
  std::vector<JobId> borrowed;
  for (std::size_t p = 0; p < job.prompts.size(); ++p) {
    prompts.push_back(
        prompt_result(job.prompts[p], reserved.layout.prompts[p], reserved.offset, facts_.dtype));
    // Where another rank publishes, so does it find the earlier results; nobody asks for them here.
    const std::optional<EarlierPrompt>& earlier = job.prompts[p].earlier;
    if (!earlier || output_.store == nullptr) continue;
    prompts.back().tensors = output_.store->prompts_of(earlier->job)->at(earlier->prompt).tensors;
    borrowed.push_back(earlier->job);
  }
  std::sort(borrowed.begin(), borrowed.end());
  borrowed.erase(std::unique(borrowed.begin(), borrowed.end()), borrowed.end());
  if (output_.store != nullptr) output_.store->publish(job.id, prompts, borrowed);
}

void BatchRunner::settle(const std::vector<Reserved>& jobs, BatchReport& report) {
  ResultStore* const store = output_.store;
  for (const Reserved& reserved : jobs) {
    const Job& job = *reserved.job;
    JobOutcome outcome;
    outcome.cut = reserved.plan.cut;
    outcome.size_bytes = reserved.layout.size_bytes;
    if (reserved.runs()) {
      outcome.kind = JobOutcome::Kind::kPublished;
      publish(reserved, outcome.prompts);
    } else if (reserved.verdict == Verdict::kNoSpace) {
      outcome.kind = JobOutcome::Kind::kNoSpace;
      outcome.failure =
          failure_of(reserved.verdict, job.name, outcome.size_bytes, output_.segment.bytes().size());
      if (store != nullptr) store->release_reservation(job.id);
    } else {
      outcome.failure =
          reserved.verdict == Verdict::kReserved
              ? JobFailure{"internal", reserved.error}
              : failure_of(reserved.verdict, job.name, outcome.size_bytes, output_.segment.bytes().size());
      // A refused name belongs to another result, whose readers must not hear of this failure.
      if (store != nullptr)
        store->fail(job.id, reserved.verdict == Verdict::kNameInUse ? "" : job.name, outcome.failure);
    }
    report.jobs.push_back(std::move(outcome));
  }
}

}  // namespace gemmad
