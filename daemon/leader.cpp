#include "daemon/leader.h"

#include <spdlog/spdlog.h>

#include "daemon/announcement.h"

namespace gemmad {

namespace {

// How soon a job that found no space is tried again. Readers on other ranks release without rank 0 hearing of
// it.
constexpr std::chrono::milliseconds kRetryAfter{10};

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

void Leader::run() {
  beat();
  for (;;) {
    parts_.alive();
    JobQueue::Work work = parts_.queue.take(settings_.batch_tokens, settings_.heartbeat);
    if (work.closed) break;
    if (work.empty()) {
      beat();
    } else {
      run_batch(std::move(work));
    }
  }
  parts_.sink.drained();
  parts_.bootstrap.announce(encode_announcement({AnnouncementKind::kStop, {}}), settings_.exchange_timeout);
}

void Leader::beat() {
  parts_.bootstrap.announce(encode_announcement({AnnouncementKind::kHeartbeat, {}}),
                            settings_.exchange_timeout);
  parts_.status.set_ranks(parts_.runner.exchange_status());
}

void Leader::run_batch(JobQueue::Work work) {
  const auto started = Clock::now();
  Announcement announcement{AnnouncementKind::kBatch, {}};
  for (QueuedJob& queued : work.jobs)
    announcement.batch.jobs.push_back(std::move(queued.job));
  announcement.batch.failures = std::move(work.failures);

  parts_.status.set_encoding(true);
  parts_.bootstrap.announce(encode_announcement(announcement), settings_.exchange_timeout);
  BatchReport report = parts_.runner.run(announcement.batch);
  parts_.status.set_ranks(report.ranks);
  parts_.status.set_encoding(false);

  for (std::size_t j = 0; j < work.jobs.size(); ++j)
    work.jobs[j].job = std::move(announcement.batch.jobs[j]);
  hand_over(std::move(work), std::move(report), started);
}

void Leader::hand_over(JobQueue::Work work, BatchReport report, Clock::time_point started) {
  std::vector<CompletedJob> completed;
  std::vector<QueuedJob> again;
  std::int64_t prompts = 0;
  std::int64_t tokens = 0;
  for (std::size_t j = 0; j < work.jobs.size(); ++j) {
    QueuedJob& queued = work.jobs[j];
    JobOutcome& outcome = report.jobs[j];
    if (outcome.kind == JobOutcome::Kind::kNoSpace) {
      queued.expiry_code = outcome.failure.code;
      queued.expiry_message = outcome.failure.message;
      again.push_back(std::move(queued));
      continue;
    }
    if (outcome.kind == JobOutcome::Kind::kPublished) {
      tokens += queued.job.num_tokens();
      parts_.metrics.add("gemmad_delivered_bytes_total", static_cast<double>(outcome.size_bytes));
      for (const PromptResult& prompt : outcome.prompts)
        prompts += prompt.ok ? 1 : 0;
    } else {
      spdlog::warn("job {} failed: {}: {}", queued.job.id, outcome.failure.code, outcome.failure.message);
    }
    completed.push_back({queued.job.id, std::move(outcome), ms_between(queued.submitted, started),
                         report.compute_ms, report.deliver_ms});
  }
  if (!completed.empty()) {
    spdlog::debug("batch of {} jobs, {} tokens: compute {:.2f} ms, deliver {:.2f} ms", completed.size(),
                  tokens, report.compute_ms, report.deliver_ms);
  }
  count(report, prompts, tokens);
  // Names are freed before anybody hears: a client may use one again as soon as it has its reply.
  if (!again.empty()) parts_.queue.put_back(std::move(again), Clock::now() + kRetryAfter);
  parts_.queue.finished();
  parts_.sink.completed(std::move(completed));
}

void Leader::count(const BatchReport& report, std::int64_t prompts, std::int64_t tokens) {
  if (tokens == 0) return;
  parts_.metrics.add("gemmad_batches_total");
  parts_.metrics.add("gemmad_prompts_total", static_cast<double>(prompts));
  parts_.metrics.add("gemmad_tokens_total", static_cast<double>(tokens));
  parts_.metrics.add("gemmad_compute_seconds_total", report.compute_ms / 1000);
  parts_.metrics.add("gemmad_deliver_seconds_total", report.deliver_ms / 1000);
}

}  // namespace gemmad
