#include "daemon/leader.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/daemon_config.h"

namespace gemmad {

namespace {

// How soon a job that found no space is tried again. Readers on other ranks release without rank 0 hearing of
// it.
constexpr std::chrono::milliseconds kRetryAfter{10};

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

Leader::Leader(LeaderParts parts, DaemonFacts facts)
    : parts_(std::move(parts)), facts_(std::move(facts)), directory_(result_cache_bytes(facts_.config)) {
  if (parts_.enhancements == nullptr) return;
  generation_.emplace(GenerationDriverParts{*parts_.enhancements, parts_.engine, parts_.queue, parts_.sink,
                                            [this](Announcement a) { announce(std::move(a)); }},
                      static_cast<int>(facts_.config.enhance_rank));
}

void Leader::run() {
  tell_changes();
  beat();
  for (;;) {
    parts_.alive();
    const std::chrono::milliseconds heartbeat(facts_.config.heartbeat_ms);
    JobQueue::Work work =
        parts_.queue.take(facts_.config.batch_tokens, generates() ? std::chrono::milliseconds(0) : heartbeat);
    if (work.closed) break;
    work_on(std::move(work));
    // Encodes first, and between any two steps: none waits for more than one.
    if (generates()) {
      generation_->step();
      tell_changes();
      idle_since_ = Clock::now();
    } else if (generation_) {
      generation_->rest_when_idle(std::chrono::milliseconds(facts_.config.enhance_idle_ms));
      tell_changes();
    }
    if (Clock::now() - heard_at_ >= heartbeat) beat();
  }
  for (const Order& order : postponed_)
    parts_.sink.ended(order.ticket, {false, "shutting_down", "the daemon stops instead", 0});
  parts_.sink.drained();
  announce({AnnouncementKind::kStop, {}, {}, {}, {}, {}});
}

void Leader::work_on(JobQueue::Work work) {
  if (generation_) generation_->take(work);
  execute(std::move(work.orders));
  if (!work.jobs.empty() || !work.failures.empty()) {
    run_batch(std::move(work));
  } else if (!generates()) {
    sleep_when_idle();
  }
}

void Leader::execute(std::vector<Order> orders) {
  if (!generates()) {
    std::move(postponed_.begin(), postponed_.end(), std::back_inserter(orders));
    postponed_.clear();
  }
  for (Order& order : orders) {
    if (order.kind == OrderKind::kSleep && generates()) {
      postponed_.push_back(std::move(order));
    } else {
      execute(std::move(order));
    }
  }
}

void Leader::announce(Announcement announcement) {
  announcement.forget = std::exchange(forget_, {});
  parts_.engine.forget(announcement.forget);
  parts_.bootstrap.announce(encode_announcement(announcement),
                            std::chrono::milliseconds(facts_.config.collective_timeout_ms));
}

void Leader::beat() {
  announce({AnnouncementKind::kHeartbeat, {}, {}, {}, {}, {}});
  hear(parts_.engine.exchange_status());
}

void Leader::hear(std::vector<RankStatus> ranks) {
  const bool stop_asked =
      std::any_of(ranks.begin(), ranks.end(), [](const RankStatus& status) { return status.stop_asked; });
  heard_at_ = Clock::now();
  parts_.status.set_ranks(std::move(ranks));
  // Whoever watches rank 0's doorbell stops the daemon.
  if (stop_asked) parts_.bootstrap.ring_rank_0();
}

void Leader::execute(Order order) {
  parts_.status.set_encoding(false);
  OrderOutcome outcome;
  try {
    complete(order);
    announce({AnnouncementKind::kOrder, {}, order, {}, {}, {}});
    outcome = parts_.engine.execute(order);
    if (generation_) generation_->look_after_order();
  } catch (const ConfigError& error) {
    outcome.code = "cannot_switch";
    outcome.message = error.what();
  }
  if (outcome.done && order.kind == OrderKind::kReconfigure) {
    reconfigure(parse_config(order.settings, "settings"));
    spdlog::info("new settings in force: mode {}, strategy {}; took {:.0f} ms", name(facts_.config.mode),
                 name(facts_.config.strategy), outcome.ms);
  } else if (outcome.done) {
    spdlog::info("{}; took {:.0f} ms", order.kind == OrderKind::kSleep ? "asleep" : "awake", outcome.ms);
  } else {
    spdlog::warn("all stays as it was: {}", outcome.message);
  }
  idle_since_ = Clock::now();
  tell_changes();
  parts_.sink.ended(order.ticket, outcome);
}

void Leader::complete(Order& order) const {
  if (order.kind != OrderKind::kReconfigure) return;
  // Onto what is in force now: other orders may have changed it since this one was given.
  const auto change = nlohmann::json::parse(order.settings);
  order.settings = effective_config(changed_config(facts_.config, change, "order")).dump();
}

void Leader::sleep_when_idle() {
  const std::chrono::milliseconds patience(facts_.config.idle_sleep_ms);
  if (patience.count() == 0 || parts_.engine.asleep() || Clock::now() - idle_since_ < patience) return;
  spdlog::info("no request for {} ms (idle_sleep_ms)", facts_.config.idle_sleep_ms);
  execute({OrderKind::kSleep, {}, 0});
}

void Leader::tell_changes() {
  if (parts_.engine.version() == told_version_) return;
  told_version_ = parts_.engine.version();
  facts_.ranks = parts_.engine.identities();
  facts_.asleep = parts_.engine.asleep();
  facts_.costs.reset();
  if (!facts_.asleep) facts_.costs = parts_.engine.residency().deployment().costs();
  parts_.sink.changed(facts_);
}

void Leader::run_batch(JobQueue::Work work) {
  const auto started = Clock::now();
  Announcement announcement{AnnouncementKind::kBatch, {}, {}, {}, {}, {}};
  for (QueuedJob& queued : work.jobs) {
    look_up(queued.job);
    announcement.batch.jobs.push_back(std::move(queued.job));
  }
  announcement.batch.failures = std::move(work.failures);

  parts_.status.set_encoding(true);
  announce(announcement);
  BatchReport report = parts_.engine.run(announcement.batch);
  // Nobody hears of a result before every rank has published it.
  hear(parts_.engine.exchange_status());
  tell_changes();
  parts_.status.set_encoding(false);
  idle_since_ = Clock::now();

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
      make_room(outcome.size_bytes);
      again.push_back(std::move(queued));
      continue;
    }
    if (outcome.kind == JobOutcome::Kind::kPublished) {
      tokens += queued.job.num_tokens();
      remember(queued.job, outcome);
      count_look_ups(queued.job);
      parts_.metrics.add("gemmad_delivered_bytes_total", static_cast<double>(outcome.size_bytes));
      for (const PromptResult& prompt : outcome.prompts)
        prompts += prompt.ok ? 1 : 0;
    } else {
      spdlog::warn("job {} failed: {}: {}", queued.job.id, outcome.failure.code, outcome.failure.message);
    }
    completed.push_back({queued.job.id, std::move(outcome), ms_between(queued.submitted, started),
                         report.compute_ms, report.busy_ms, report.deliver_ms});
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

void Leader::look_up(Job& job) {
  bool computes = false;
  for (JobPrompt& prompt : job.prompts) {
    // Looked up anew with every try: what was there may be forgotten.
    prompt.earlier.reset();
    if (directory_.on() && prompt.ok() && !job.is_alone)
      prompt.earlier = directory_.find({prompt.ids, job.outputs});
    computes = computes || prompt.is_computed();
  }
  job.is_kept = directory_.on() && computes && !job.is_alone;
}

void Leader::remember(const Job& job, const JobOutcome& outcome) {
  if (!job.is_kept) return;
  std::vector<ComputedPrompt> computed;
  for (std::size_t p = 0; p < job.prompts.size(); ++p) {
    if (job.prompts[p].is_computed()) computed.push_back({p, {job.prompts[p].ids, job.outputs}});
  }
  forget(directory_.remember(job.id, outcome.size_bytes, std::move(computed)));
}

void Leader::make_room(std::uint64_t size_bytes) {
  for (const std::uint64_t before = directory_.counters().bytes;
       before - directory_.counters().bytes < size_bytes;) {
    const std::optional<JobId> oldest = directory_.forget_oldest();
    if (!oldest) break;
    forget({*oldest});
  }
}

/// Another layout of the model gives other low bits: the same request gives the same bytes in one mode.
void Leader::reconfigure(const DaemonConfig& config) {
  if (!(shard_settings(config) == shard_settings(facts_.config))) forget(directory_.clear());
  forget(directory_.set_max_bytes(result_cache_bytes(config)));
  facts_.config = config;
}

void Leader::count_look_ups(const Job& job) {
  if (!directory_.on() || job.is_alone) return;
  for (const JobPrompt& prompt : job.prompts) {
    if (!prompt.ok()) continue;
    parts_.metrics.add(prompt.earlier ? "gemmad_result_cache_hits_total"
                                      : "gemmad_result_cache_misses_total");
  }
  const ResultDirectory::Counters counters = directory_.counters();
  parts_.metrics.set("gemmad_result_cache_bytes", static_cast<double>(counters.bytes));
  parts_.metrics.set("gemmad_result_cache_jobs", static_cast<double>(counters.jobs));
  parts_.metrics.set("gemmad_result_cache_prompts", static_cast<double>(counters.prompts));
}

void Leader::count(const BatchReport& report, std::int64_t prompts, std::int64_t tokens) {
  if (prompts == 0) return;
  parts_.metrics.add("gemmad_batches_total");
  parts_.metrics.add("gemmad_prompts_total", static_cast<double>(prompts));
  parts_.metrics.add("gemmad_tokens_total", static_cast<double>(tokens));
  parts_.metrics.add("gemmad_compute_seconds_total", report.compute_ms / 1000);
  parts_.metrics.add("gemmad_busy_seconds_total", report.busy_ms / 1000);
  parts_.metrics.add("gemmad_deliver_seconds_total", report.deliver_ms / 1000);
}

}  // namespace gemmad
