#include "daemon/enhance_desk.h"

#include <algorithm>
#include <utility>

#include "daemon/replies.h"

namespace gemmad {

EnhanceDesk::EnhanceDesk(Parts parts) : parts_(std::move(parts)) {
  if (parts_.render) renderer_.emplace(parts_.render, parts_.on_rendered);
}

void EnhanceDesk::take(const Asker& asker, EnhanceRequest request, RequestTimes times) {
  Owed owed;
  owed.asker = asker;
  owed.times = times;
  owed.enhancement.name = std::move(request.name);
  owed.enhancement.readers = request.readers;
  begin(std::move(owed), std::move(request.prompt), std::move(request.options));
}

void EnhanceDesk::take(const Asker& asker, EncodeRequest request, RequestTimes times) {
  Owed owed;
  owed.asker = asker;
  owed.times = times;
  EnhanceOptions options = *std::exchange(request.enhance, std::nullopt);
  std::string prompt = std::get<std::string>(request.prompts.front());
  owed.encode = std::move(request);
  begin(std::move(owed), std::move(prompt), std::move(options));
}

void EnhanceDesk::begin(Owed owed, std::string prompt, EnhanceOptions options) {
  if (!renderer_) return refuse(owed.asker, {"no_enhancer", "this daemon rewrites no prompts"});
  if (owed_.size() >= parts_.max_requests) {
    return refuse(
        owed.asker,
        {"queue_full", std::to_string(parts_.max_requests) +
                           " prompts wait or are rewritten already (enhance.queue); try again later"});
  }
  const std::string& name = owed.encode ? owed.encode->name : owed.enhancement.name;
  if (!name.empty() && (holds_name(name) || parts_.queue.has_name(name)))
    return refuse(owed.asker, {"name_in_use", "a request named '" + name + "' waits or runs already"});
  const JobId id = parts_.ids.take();
  owed.streams = options.streams;
  owed.max_new_tokens = options.max_new_tokens;
  owed.enhancement.id = id;
  owed.enhancement.sampling = options.sampling;
  owed.enhancement.cleans = options.cleans;
  owed.enhancement.guards_circles = options.guards_circles;
  owed_.emplace(id, std::move(owed));
  renderer_->begin(id, std::move(prompt), std::move(options));
}

void EnhanceDesk::take_rendered() {
  if (!renderer_) return;
  for (PromptRenderer::Rendered& rendered : renderer_->take()) {
    const auto owed = owed_.find(rendered.id);
    if (owed == owed_.end()) continue;
    if (const auto* failure = std::get_if<JobFailure>(&rendered.result)) {
      tell_readers(owed->second, *failure);
      fail(owed->second, *failure);
    } else {
      queue(owed->second, std::get<RenderedPrompt>(std::move(rendered.result)));
    }
  }
}

void EnhanceDesk::queue(Owed& owed, RenderedPrompt prompt) {
  if (const auto failure = fill(owed, std::move(prompt))) {
    tell_readers(owed, *failure);
    return fail(owed, *failure);
  }
  QueuedEnhancement queued{std::move(owed.enhancement), owed.times.submitted, owed.times.deadline};
  owed.enhancement = {};
  owed.enhancement.id = queued.enhancement.id;
  owed.enhancement.name = queued.enhancement.name;
  owed.stage = Stage::kQueued;
  const JobQueue::Admission admission = parts_.queue.push(std::move(queued));
  if (admission == JobQueue::Admission::kAdmitted) return;
  // As if it had never been taken: readers of that name wait for another request, or for one that will come.
  fail(owed,
       admission_failure(admission, owed.enhancement.name,
                         std::to_string(parts_.max_requests) +
                             " prompts wait or are rewritten already (enhance.queue); try again later"));
}

std::optional<JobFailure> EnhanceDesk::fill(Owed& owed, RenderedPrompt prompt) const {
  Enhancement& enhancement = owed.enhancement;
  const auto num_tokens = static_cast<std::int64_t>(prompt.ids.size());
  const std::int64_t room = parts_.context - num_tokens;
  const std::int64_t least = owed.max_new_tokens.value_or(1);
  if (room < least) {
    return JobFailure{"too_long",
                      "the prompt has " + std::to_string(num_tokens) +
                          " tokens with its chat template, system prompt and image, and at least " +
                          std::to_string(least) + " are to follow: together they may be " +
                          std::to_string(parts_.context) + " (enhance.context)"};
  }
  enhancement.max_new_tokens = owed.max_new_tokens.value_or(std::min(enhancement.max_new_tokens, room));
  enhancement.ids = std::move(prompt.ids);
  enhancement.image = std::move(prompt.image);
  return std::nullopt;
}

void EnhanceDesk::generated(const GeneratedPiece& piece) {
  const auto found = owed_.find(piece.id);
  if (found == owed_.end()) return;
  Owed& owed = found->second;
  owed.stage = Stage::kRunning;
  if (owed.streams) parts_.send(owed.asker.client, token_event(owed.asker.request, piece));
}

void EnhanceDesk::enhanced(const EnhancementOutcome& outcome) {
  count(outcome.ok ? "ok" : outcome.failure.code);
  parts_.metrics.add("gemmad_generated_tokens_total", static_cast<double>(outcome.tokens_out));
  const auto found = owed_.find(outcome.id);
  if (found == owed_.end()) return;
  Owed owed = std::move(found->second);
  owed_.erase(found);
  if (!owed.encode && outcome.ok)
    return parts_.send(
        owed.asker.client,
        enhance_reply({owed.asker.request, owed.enhancement.name, owed.times.submitted}, outcome));
  if (!outcome.ok || owed.given_up) {
    const JobFailure failure = outcome.ok ? *owed.given_up : outcome.failure;
    if (owed.encode) tell_readers(owed, failure);
    return answer(owed, failure);
  }
  owed.encode->prompts.front() = outcome.text;
  parts_.admit_encode(owed.asker, *owed.encode, owed.times, enhanced_object(outcome));
}

JobId EnhanceDesk::find(ClientId client, const CancelRequest& request) const {
  const auto found = std::find_if(owed_.begin(), owed_.end(), [&](const auto& entry) {
    const auto& [id, owed] = entry;
    if (request.job) return id == *request.job;
    if (request.request) return owed.asker.client == client && owed.asker.request == *request.request;
    return (owed.encode ? owed.encode->name : owed.enhancement.name) == *request.name;
  });
  return found == owed_.end() ? 0 : found->first;
}

bool EnhanceDesk::withdraw(Owed& owed, const JobFailure& reason) {
  const JobId id = owed.enhancement.id;
  if (owed.stage == Stage::kRendering) {
    renderer_->drop(id);
    return true;
  }
  if (!owed.given_up) parts_.queue.give_up(id, reason.code, reason.message);
  owed.given_up = reason;
  return false;
}

bool EnhanceDesk::cancel(JobId job) {
  const auto found = owed_.find(job);
  if (found == owed_.end()) return true;
  const JobFailure reason{"cancelled", "it was cancelled"};
  if (!withdraw(found->second, reason)) return false;
  tell_readers(found->second, reason);
  fail(found->second, reason);
  return true;
}

void EnhanceDesk::forget(ClientId client) {
  const JobFailure reason{"cancelled", "the client that asked for it has gone"};
  for (auto next = owed_.begin(); next != owed_.end();) {
    Owed& owed = next->second;
    if (owed.asker.client != client) {
      ++next;
      continue;
    }
    if (withdraw(owed, reason) || owed.encode) tell_readers(owed, reason);
    next = owed_.erase(next);
  }
}

void EnhanceDesk::end_all(const std::string& code, const std::string& message) {
  const JobFailure reason{code, message};
  for (auto next = owed_.begin(); next != owed_.end();) {
    Owed& owed = (next++)->second;  // which may go
    if (!withdraw(owed, reason)) continue;
    tell_readers(owed, reason);
    fail(owed, reason);
  }
}

bool EnhanceDesk::owes(ClientId client) const {
  return std::any_of(owed_.begin(), owed_.end(),
                     [&](const auto& entry) { return entry.second.asker.client == client; });
}

bool EnhanceDesk::owes(ClientId client, const RequestId& request) const {
  return std::any_of(owed_.begin(), owed_.end(), [&](const auto& entry) {
    return entry.second.asker.client == client && entry.second.asker.request == request;
  });
}

bool EnhanceDesk::holds_name(const std::string& name) const {
  return std::any_of(owed_.begin(), owed_.end(), [&](const auto& entry) {
    const Owed& owed = entry.second;
    if (owed.encode) return owed.encode->name == name;
    return owed.stage == Stage::kRendering && owed.enhancement.name == name;
  });
}

bool EnhanceDesk::will_queue() const {
  return std::any_of(owed_.begin(), owed_.end(), [](const auto& entry) {
    return entry.second.stage == Stage::kRendering || (entry.second.encode && !entry.second.given_up);
  });
}

std::size_t EnhanceDesk::num_running() const {
  return static_cast<std::size_t>(std::count_if(
      owed_.begin(), owed_.end(), [](const auto& entry) { return entry.second.stage == Stage::kRunning; }));
}

void EnhanceDesk::fail(Owed& owed, const JobFailure& failure) {
  count(failure.code);
  answer(owed, failure);
  const JobId id = owed.enhancement.id;
  owed_.erase(id);
}

void EnhanceDesk::answer(const Owed& owed, const JobFailure& failure) {
  if (owed.encode) parts_.metrics.add("gemmad_jobs_total{result=\"" + failure.code + "\"}");
  refuse(owed.asker, failure);
}

void EnhanceDesk::tell_readers(const Owed& owed, const JobFailure& failure) {
  // An encode that never comes has a number of its own, as it would have had.
  const JobId id = owed.encode ? parts_.ids.take() : owed.enhancement.id;
  const std::string& name = owed.encode ? owed.encode->name : owed.enhancement.name;
  if (!name.empty()) parts_.queue.tell_readers({id, name, failure.code, failure.message});
}

void EnhanceDesk::refuse(const Asker& asker, const JobFailure& failure) {
  parts_.send(asker.client, error_reply(asker.request, failure.code, failure.message));
}

void EnhanceDesk::count(const std::string& result) {
  parts_.metrics.add("gemmad_enhancements_total{result=\"" + result + "\"}");
}

}  // namespace gemmad
