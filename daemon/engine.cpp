#include "daemon/engine.h"

#include "config/daemon_config.h"
#include "daemon/agreement.h"
#include "daemon/gather.h"
#include "daemon/log_level.h"

namespace gemmad {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// The report of a batch that could not run at all.
BatchReport failed_report(const Batch& batch, const std::string& reason) {
  BatchReport report;
  for (std::size_t j = 0; j < batch.jobs.size(); ++j) {
    JobOutcome outcome;
    outcome.failure = {"cannot_wake", reason};
    report.jobs.push_back(std::move(outcome));
  }
  return report;
}

std::vector<FailureNotice> notices(const Batch& batch, const std::string& reason) {
  std::vector<FailureNotice> all = batch.failures;
  for (const Job& job : batch.jobs)
    all.push_back({job.id, job.name, "cannot_wake", reason});
  return all;
}

}  // namespace

Engine::Engine(const EngineParts& parts, const DaemonConfig& config, std::function<RankIdentity()> identity)
    : parts_(parts),
      exchange_timeout_(config.collective_timeout_ms),
      heartbeat_(config.heartbeat_ms),
      identity_(std::move(identity)) {
  tell_identities();
}

void Engine::tell_identities() {
  identities_ = gather(parts_.bootstrap, identity_(), exchange_timeout_);
  ++version_;
}

BatchReport Engine::run(const Batch& batch) {
  if (batch.jobs.empty()) {
    parts_.runner.tell_failures(batch.failures);
    return {};
  }
  if (parts_.residency.asleep()) {
    try {
      parts_.residency.wake();
      tell_identities();
    } catch (const StepFailed& error) {
      const std::string reason = std::string("the daemon sleeps and cannot wake: ") + error.what();
      parts_.runner.tell_failures(notices(batch, reason));
      return failed_report(batch, reason);
    }
  }
  return parts_.runner.run(batch, parts_.residency.deployment());
}

GenerationReport Engine::generate(const GenerationOrder& order) {
  GenerationReport report;
  try {
    report.step = parts_.generation->step(order);
  } catch (const StepFailed& error) {
    report.failure = error.what();
  }
  if (parts_.generation->version() != told_generation_) {
    told_generation_ = parts_.generation->version();
    tell_identities();
  }
  return report;
}

void Engine::rest_generation() {
  if (parts_.generation == nullptr) return;
  parts_.generation->release();
  tell_identities();
}

void Engine::suspend_generation() {
  if (parts_.generation != nullptr) parts_.generation->suspend();
}

OrderOutcome Engine::execute(const Order& order) {
  const auto start = SteadyClock::now();
  OrderOutcome outcome;
  try {
    switch (order.kind) {
      case OrderKind::kReconfigure:
        reconfigure(order.settings);
        break;
      case OrderKind::kSleep:
        if (parts_.generation != nullptr) parts_.generation->release();
        parts_.residency.sleep();
        break;
      case OrderKind::kWake:
        parts_.residency.wake();
        break;
    }
    outcome.done = true;
  } catch (const StepFailed& error) {
    outcome.code = order.kind == OrderKind::kWake ? "cannot_wake" : "cannot_switch";
    outcome.message = error.what();
  }
  tell_identities();
  outcome.ms = std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
  return outcome;
}

void Engine::reconfigure(const std::string& settings) {
  DaemonConfig wanted;
  agree(parts_.bootstrap, exchange_timeout_, [&] { wanted = parse_config(settings, "settings of rank 0"); });
  if (!(shard_settings(wanted) == parts_.residency.settings())) {
    suspend_generation();
    parts_.residency.deploy(shard_settings(wanted));
  }
  if (parts_.store != nullptr) parts_.store->set_ttl(std::chrono::milliseconds(wanted.result_ttl_ms));
  heartbeat_ = std::chrono::milliseconds(wanted.heartbeat_ms);
  set_log_level(wanted.log_level);
}

std::vector<RankStatus> Engine::exchange_status() {
  RankStatus status = rank_status(parts_.store);
  status.tokens = parts_.runner.num_tokens();
  status.stop_asked = parts_.stop_asked;
  return gather(parts_.bootstrap, status, exchange_timeout_);
}

}  // namespace gemmad
