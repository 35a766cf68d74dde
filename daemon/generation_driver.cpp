#include "daemon/generation_driver.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace gemmad {

GenerationDriver::GenerationDriver(GenerationDriverParts parts, int rank)
    : parts_(std::move(parts)), rank_(rank) {
  restart();
}

void GenerationDriver::take(JobQueue::Work& work) {
  for (QueuedEnhancement& queued : work.enhancements)
    parts_.enhancements.add(std::move(queued));
  for (const FailureNotice& failure : work.given_up)
    parts_.enhancements.give_up(failure);
}

void GenerationDriver::step() {
  Announcement announcement;
  announcement.kind = AnnouncementKind::kGenerate;
  announcement.generation = parts_.enhancements.next_order(Clock::now());
  if (parts_.enhancements.has_running()) {
    parts_.announce(announcement);
    rests_ = false;
    const GenerationReport report = parts_.engine.generate(announcement.generation);
    if (report.failure.empty()) {
      auto pieces = parts_.enhancements.hear(report.step, Clock::now());
      if (!pieces.empty()) parts_.sink.generated(std::move(pieces));
    } else {
      parts_.enhancements.fail_all("cannot_generate", report.failure);
    }
  }
  known_version_ = parts_.engine.generation_version();
  hand_over();
  idle_since_ = Clock::now();
}

void GenerationDriver::hand_over() {
  std::vector<Enhancements::Ended> ended = parts_.enhancements.take_ended();
  if (ended.empty()) return;
  Announcement announcement;
  announcement.kind = AnnouncementKind::kTexts;
  for (const Enhancements::Ended& one : ended)
    announcement.texts.push_back(one.notice);
  parts_.announce(announcement);
  // Nobody hears of a text before every rank has published it.
  parts_.engine.publish(announcement.texts);
  for (Enhancements::Ended& one : ended) {
    const EnhancementOutcome& outcome = one.outcome;
    if (outcome.ok) {
      spdlog::debug("enhancement {}: {} tokens in, {} out, {:.1f} ms to the first, {:.1f} ms more; {}",
                    outcome.id, outcome.tokens_in, outcome.tokens_out, outcome.prefill_ms, outcome.decode_ms,
                    name(outcome.stop));
    } else {
      spdlog::warn("enhancement {} failed: {}: {}", outcome.id, outcome.failure.code,
                   outcome.failure.message);
    }
    parts_.queue.ended(outcome.id);
    parts_.sink.enhanced(std::move(one.outcome));
  }
}

void GenerationDriver::look_after_order() {
  if (parts_.engine.generation_version() != known_version_ || !parts_.enhancements.has_running()) restart();
}

void GenerationDriver::restart() {
  known_version_ = parts_.engine.generation_version();
  parts_.enhancements.restart(parts_.engine.generation_replicas(rank_));
}

void GenerationDriver::rest_when_idle(std::chrono::milliseconds patience) {
  if (rests_ || Clock::now() - idle_since_ < patience) return;
  rests_ = true;
  Announcement announcement;
  announcement.kind = AnnouncementKind::kRest;
  parts_.announce(announcement);
  parts_.engine.rest_generation();
  restart();
}

}  // namespace gemmad
