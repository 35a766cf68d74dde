#include "daemon/enhancements.h"

#include <algorithm>
#include <utility>

#include "daemon/tokenizer/clean_response.h"

namespace gemmad {

namespace {

double ms_between(Enhancements::TimePoint from, Enhancements::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

void Enhancements::add(QueuedEnhancement queued) {
  open_.push_back({std::move(queued), {}, false, {}, TextStream(tokenizer_), {}, {}, 0, {}, {}, {}});
}

bool Enhancements::has_running() const {
  return std::any_of(open_.begin(), open_.end(), [](const Open& open) { return open.replica.has_value(); });
}

Enhancements::Open* Enhancements::find(JobId id) {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const Open& open) { return open.queued.enhancement.id == id; });
  return found == open_.end() ? nullptr : &*found;
}

void Enhancements::give_up(const FailureNotice& failure) {
  if (Open* const open = find(failure.id)) fail(*open, failure.code, failure.message);
}

void Enhancements::restart(std::vector<std::int32_t> replicas) {
  replicas_ = std::move(replicas);
  // leaving_ stays: the ranks may have kept their memory, and ending one that they do not have does nothing.
  for (Open& open : open_) {
    open.replica.reset();
    open.is_begun = false;
  }
}

void Enhancements::fail_all(const std::string& code, const std::string& message) {
  while (!open_.empty())
    fail(open_.front(), code, message);
}

GenerationOrder Enhancements::next_order(TimePoint now) {
  for (auto open = open_.begin(); open != open_.end();) {
    Open& here = *open++;
    if (here.queued.deadline <= now)
      fail(here, "deadline", "its deadline passed after " + std::to_string(here.tokens_out) + " tokens");
  }
  GenerationOrder order;
  for (Open& open : open_) {
    if (open.is_begun) continue;
    const std::optional<std::int32_t> replica = free_replica();
    if (!replica) break;
    open.replica = replica;
    open.is_begun = true;
    if (!open.started) open.started = now;
    const Enhancement& enhancement = open.queued.enhancement;
    SequenceStart start{enhancement.id,        *replica,          enhancement.ids,
                        open.generated.size(), enhancement.image, enhancement.sampling};
    start.ids.insert(start.ids.end(), open.generated.begin(), open.generated.end());
    order.begins.push_back(std::move(start));
  }
  // With nothing to run this order goes nowhere.
  if (has_running()) order.ends = std::exchange(leaving_, {});
  return order;
}

std::optional<std::int32_t> Enhancements::free_replica() const {
  const auto load = [&](std::int32_t replica) {
    return std::count_if(open_.begin(), open_.end(),
                         [&](const Open& open) { return open.replica == replica; });
  };
  const auto least = std::min_element(replicas_.begin(), replicas_.end(),
                                      [&](std::int32_t a, std::int32_t b) { return load(a) < load(b); });
  if (least == replicas_.end() || load(*least) >= slots_per_replica_) return std::nullopt;
  return *least;
}

std::vector<GeneratedPiece> Enhancements::hear(const StepReport& report, TimePoint now) {
  std::vector<GeneratedPiece> pieces;
  for (const SequenceNews& news : report.news) {
    Open* const open = find(news.id);
    if (open == nullptr) continue;
    if (news.kind == SequenceNews::Kind::kFailed) {
      fail(*open, "internal", report.error);
    } else if (news.kind == SequenceNews::Kind::kToken) {
      GeneratedPiece piece{news.id, {}, {}};
      const std::optional<StopReason> stop = take_token(*open, news.token, now, piece);
      if (stop) piece.text += open->stream.finish();
      if (!piece.ids.empty() || !piece.text.empty()) pieces.push_back(piece);
      open->text += piece.text;
      if (stop) finish(*open, *stop);
    }
  }
  return pieces;
}

std::optional<StopReason> Enhancements::take_token(Open& open, std::int32_t token, TimePoint now,
                                                   GeneratedPiece& piece) {
  if (!open.first_token) open.first_token = now;
  open.last_token = now;
  ++open.tokens_out;
  if (std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) return StopReason::kEnd;
  open.generated.push_back(token);
  piece.ids.push_back(token);
  piece.text += open.stream.push(token);
  const auto circle = open.guard.push(token);
  if (circle && open.queued.enhancement.guards_circles) {
    open.generated.resize(static_cast<std::size_t>(*circle));
    return StopReason::kRepetition;
  }
  if (open.tokens_out >= open.queued.enhancement.max_new_tokens) return StopReason::kLength;
  return std::nullopt;
}

std::string Enhancements::decoded(const std::vector<std::int32_t>& ids) const {
  TextStream stream(tokenizer_);
  std::string text;
  for (const std::int32_t id : ids)
    text += stream.push(id);
  return text + stream.finish();
}

void Enhancements::finish(Open& open, StopReason reason) {
  const Enhancement& enhancement = open.queued.enhancement;
  Ended ended;
  EnhancementOutcome& outcome = ended.outcome;
  outcome.id = enhancement.id;
  outcome.ok = true;
  // Of what was cut the stream knows too much.
  outcome.raw_text = reason == StopReason::kRepetition ? decoded(open.generated) : open.text;
  outcome.text = enhancement.cleans ? clean_response(outcome.raw_text) : outcome.raw_text;
  outcome.stop = reason;
  outcome.tokens_in = static_cast<std::int64_t>(enhancement.ids.size());
  outcome.tokens_out = open.tokens_out;
  outcome.queue_ms = ms_between(open.queued.submitted, *open.started);
  outcome.prefill_ms = ms_between(*open.started, *open.first_token);
  outcome.decode_ms = ms_between(*open.first_token, open.last_token);
  ended.notice = {enhancement.id, enhancement.name, enhancement.readers, true, outcome.text, {}};
  ended_.push_back(std::move(ended));
  leave(open);
}

void Enhancements::fail(Open& open, const std::string& code, const std::string& message) {
  const Enhancement& enhancement = open.queued.enhancement;
  Ended ended;
  ended.outcome.id = enhancement.id;
  ended.outcome.failure = {code, message};
  ended.outcome.tokens_in = static_cast<std::int64_t>(enhancement.ids.size());
  ended.outcome.tokens_out = open.tokens_out;
  ended.notice = {enhancement.id, enhancement.name, enhancement.readers, false, {}, {code, message}};
  ended_.push_back(std::move(ended));
  leave(open);
}

void Enhancements::leave(Open& open) {
  const JobId id = open.queued.enhancement.id;
  if (open.is_begun) leaving_.push_back(id);
  open_.remove_if([&](const Open& other) { return other.queued.enhancement.id == id; });
}

}  // namespace gemmad
