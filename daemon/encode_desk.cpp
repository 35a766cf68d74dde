#include "daemon/encode_desk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace gemmad {

bool EncodeDesk::admit(const Asker& asker, const EncodeRequest& request, RequestTimes times,
                       std::string enhanced) {
  QueuedJob queued;
  queued.job = make_job(request, parts_.tokenizer, parts_.limits);
  queued.job.id = parts_.ids.take();
  queued.submitted = Clock::now();
  queued.deadline = times.deadline;
  Owed owed{
      asker.client,
      {asker.request, request.name, request.return_input_ids, {}, times.submitted, std::move(enhanced)}};
  if (request.return_input_ids) {
    for (const JobPrompt& prompt : queued.job.prompts)
      owed.context.input_ids.push_back(prompt.ids);
  }
  const JobId job = queued.job.id;
  const JobQueue::Admission admission = parts_.queue.push(std::move(queued));
  if (admission != JobQueue::Admission::kAdmitted) {
    const JobFailure failure = admission_failure(
        admission, request.name,
        std::to_string(parts_.queue_length) + " requests wait already (queue_length); try again later");
    parts_.send(asker.client, error_reply(asker.request, failure.code, failure.message));
    return false;
  }
  by_client_[asker.client].emplace(asker.request, job);
  owed_.emplace(job, std::move(owed));
  return true;
}

void EncodeDesk::answer(const CompletedJob& job) {
  const bool published = job.outcome.kind == JobOutcome::Kind::kPublished;
  parts_.metrics.add("gemmad_jobs_total{result=\"" +
                     (published ? std::string("ok") : job.outcome.failure.code) + "\"}");
  const auto owed = owed_.find(job.id);
  if (owed == owed_.end()) return;
  const auto& [client, context] = owed->second;
  if (published) {
    parts_.metrics.add("gemmad_job_seconds_sum",
                       std::chrono::duration<double>(Clock::now() - context.submitted).count());
  }
  parts_.send(client, encode_reply(context, job));
  const auto by_client = by_client_.find(client);
  if (by_client != by_client_.end()) {
    by_client->second.erase(context.id);
    if (by_client->second.empty()) by_client_.erase(by_client);
  }
  owed_.erase(owed);
}

void EncodeDesk::answer_failure(JobId job, const std::string& code, const std::string& message) {
  CompletedJob failed;
  failed.id = job;
  failed.outcome.failure = {code, message};
  answer(failed);
}

void EncodeDesk::answer_expired() {
  for (const QueuedJob& job : parts_.queue.take_expired(Clock::now())) {
    spdlog::warn("job {} failed: {}: {}", job.job.id, job.expiry_code, job.expiry_message);
    answer_failure(job.job.id, job.expiry_code, job.expiry_message);
  }
}

void EncodeDesk::end_waiting(const std::string& code, const std::string& message) {
  for (const QueuedJob& job : parts_.queue.remove_all(code, message))
    answer_failure(job.job.id, code, message);
}

JobId EncodeDesk::find(ClientId client, const CancelRequest& request) const {
  if (request.job) return owed_.count(*request.job) > 0 ? *request.job : 0;
  if (request.request) {
    const auto owed = by_client_.find(client);
    if (owed == by_client_.end()) return 0;
    const auto found = owed->second.find(*request.request);
    return found == owed->second.end() ? 0 : found->second;
  }
  const auto named = std::find_if(owed_.begin(), owed_.end(), [&](const auto& entry) {
    return entry.second.context.name == *request.name;
  });
  return named == owed_.end() ? 0 : named->first;
}

bool EncodeDesk::cancel(JobId job) {
  const std::string message = "it was cancelled";
  if (!parts_.queue.remove(job, "cancelled", message)) return false;
  answer_failure(job, "cancelled", message);
  return true;
}

void EncodeDesk::forget(ClientId client) {
  const auto owed = by_client_.extract(client);
  if (owed.empty()) return;
  for (const auto& [id, job] : owed.mapped()) {
    // What runs already is finished and expires unread; what waits is given up.
    parts_.queue.remove(job, "cancelled", "the client that asked for it has gone");
    owed_.erase(job);
  }
}

bool EncodeDesk::owes(ClientId client, const RequestId& request) const {
  const auto owed = by_client_.find(client);
  return owed != by_client_.end() && owed->second.count(request) > 0;
}

}  // namespace gemmad
