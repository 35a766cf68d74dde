#include "daemon/control_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/tokenizer/prompt_encoder.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kLongestSleep{1000};
constexpr std::chrono::milliseconds kGoodbyeTime{2000};

LineServer::Limits line_limits(const DaemonConfig& config) {
  LineServer::Limits limits;
  limits.max_clients = static_cast<std::size_t>(config.max_clients);
  limits.max_line_bytes = static_cast<std::size_t>(config.max_line_bytes);
  limits.max_unsent_bytes = static_cast<std::size_t>(config.max_unsent_bytes);
  limits.stall_timeout = std::chrono::milliseconds(config.client_stall_ms);
  limits.full_line = error_reply("null", "too_many_clients",
                                 "the daemon serves " + std::to_string(config.max_clients) +
                                     " clients already (max_clients); try again later");
  return limits;
}

}  // namespace

ControlServer::ControlServer(UnixListener listener, ControlParts parts, DaemonFacts facts,
                             std::vector<OutsideSource> sources, std::function<DaemonConfig()> load_settings)
    : parts_(parts),
      facts_(std::move(facts)),
      desk_(parts.queue, std::move(load_settings)),
      prompt_limits_{facts_.config.max_tokens, facts_.model.vocab_size},
      server_(std::move(listener), line_limits(facts_.config), *this) {
  protocol_limits_.max_line_bytes = static_cast<std::size_t>(facts_.config.max_line_bytes);
  protocol_limits_.max_prompts = facts_.config.max_prompts;
  protocol_limits_.num_layers = facts_.model.num_layers;
  protocol_limits_.takes_text = parts.tokenizer != nullptr;
  protocol_limits_.has_processor = facts_.processor.has_value();
  for (OutsideSource& source : sources)
    server_.watch(source.fd, [this, take = std::move(source.take)] { hear(take()); });
  thread_ = std::thread([this] { run(); });
}

ControlServer::~ControlServer() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  server_.wake();
  if (thread_.joinable()) thread_.join();
}

void ControlServer::hand_over(const std::function<void()>& put) {
  {
    const std::lock_guard lock(mutex_);
    put();
  }
  server_.wake();
}

void ControlServer::completed(std::vector<CompletedJob> jobs) {
  hand_over([&] { std::move(jobs.begin(), jobs.end(), std::back_inserter(completed_)); });
}

void ControlServer::changed(DaemonFacts facts) {
  hand_over([&] { changed_ = std::move(facts); });
}

void ControlServer::ended(std::uint64_t ticket, OrderOutcome outcome) {
  hand_over([&] { ended_.emplace_back(ticket, std::move(outcome)); });
}

void ControlServer::drained() {
  hand_over([&] { drained_ = true; });
}

void ControlServer::join() {
  if (thread_.joinable()) thread_.join();
  if (!failure_.empty()) throw std::runtime_error("the control thread failed: " + failure_);
}

void ControlServer::run() {
  try {
    for (;;) {
      std::this_thread::yield();  // it may be busy on a core that others want
      server_.run_once(time_to_sleep());
      answer_orders();
      answer_completed();
      answer_expired();
      if (drain_deadline_ && Clock::now() >= *drain_deadline_) end_waiting_jobs();
      bool drained = false;
      {
        const std::lock_guard lock(mutex_);
        if (abandoned_) return;
        drained = drained_ && completed_.empty() && ended_.empty();
      }
      if (drained) return say_goodbye();
    }
  } catch (const std::exception& error) {
    // Without this thread the daemon hears nobody: let the engine finish what it has and leave.
    failure_ = error.what();
    parts_.queue.close();
  }
}

std::chrono::milliseconds ControlServer::time_to_sleep() const {
  if (!owed_.empty() && Clock::now() < busy_until_) return std::chrono::milliseconds(0);
  std::optional<Clock::time_point> next = parts_.queue.next_deadline();
  if (drain_deadline_ && (!next || *drain_deadline_ < *next)) next = drain_deadline_;
  if (!next) return kLongestSleep;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), kLongestSleep);
}

void ControlServer::on_line(ClientId client, std::string_view line) {
  if (line.find("\"encode\"") != std::string_view::npos) parts_.alert();
  take_changes();
  try {
    const Request request = parse_request(line, protocol_limits_);
    parts_.metrics.add("gemmad_requests_total{op=\"" + std::string(request.op) + "\"}");
    std::visit([&](const auto& command) { handle(client, request.id, command); }, request.command);
  } catch (const ProtocolError& error) {
    parts_.metrics.add("gemmad_requests_total{op=\"invalid\"}");
    refuse(client, error.id(), error.code(), error.what());
  }
}

void ControlServer::on_line_too_long(ClientId client) {
  parts_.metrics.add("gemmad_requests_total{op=\"invalid\"}");
  refuse(client, "null", "line_too_long",
         "a request line may have " + std::to_string(protocol_limits_.max_line_bytes) +
             " bytes (max_line_bytes); the rest of this one is skipped");
}

void ControlServer::on_connect(ClientId client) {
  clients_.insert(client);
}

void ControlServer::on_disconnect(ClientId client) {
  clients_.erase(client);
  desk_.forget(client);
  const auto owed = owed_by_client_.extract(client);
  if (owed.empty()) return;
  for (const auto& [id, job] : owed.mapped()) {
    // What runs already is finished and expires unread; what waits is given up.
    parts_.queue.remove(job, "cancelled", "the client that asked for it has gone");
    owed_.erase(job);
  }
}

bool ControlServer::keeps_half_closed(ClientId client) {
  if (owed_by_client_.count(client) > 0) return true;
  if (desk_.owes(client)) return true;
  return std::any_of(shutdown_requests_.begin(), shutdown_requests_.end(),
                     [&](const auto& request) { return request.first == client; });
}

void ControlServer::handle(ClientId client, const RequestId& id, const EncodeRequest& request) {
  if (draining_) return refuse(client, id, "shutting_down", "the daemon is stopping");
  if (is_duplicate(client, id)) return refuse_duplicate(client, id);
  const auto now = Clock::now();
  QueuedJob queued;
  queued.job = make_job(request, parts_.tokenizer, prompt_limits_);
  queued.job.id = next_job_;
  queued.submitted = now;
  queued.deadline = now + std::chrono::milliseconds(request.deadline_ms.value_or(facts_.config.deadline_ms));
  Owed owed{client, {id, request.name, request.return_input_ids, {}, now}};
  if (request.return_input_ids) {
    for (const JobPrompt& prompt : queued.job.prompts)
      owed.context.input_ids.push_back(prompt.ids);
  }
  const JobQueue::Admission admission = parts_.queue.push(std::move(queued));
  if (admission != JobQueue::Admission::kAdmitted)
    return refuse_admission(client, id, admission, request.name);
  busy_until_ = now + parts_.busy_time;
  owed_by_client_[client].emplace(id, next_job_);
  owed_.emplace(next_job_++, std::move(owed));
}

void ControlServer::refuse_admission(ClientId client, const RequestId& id, JobQueue::Admission admission,
                                     const std::string& name) {
  switch (admission) {
    case JobQueue::Admission::kFull:
      return refuse(client, id, "queue_full",
                    std::to_string(facts_.config.queue_length) +
                        " requests wait already (queue_length); try again later");
    case JobQueue::Admission::kNameWaits:
      return refuse(client, id, "name_in_use", "a request named '" + name + "' waits or runs already");
    case JobQueue::Admission::kClosed:
    case JobQueue::Admission::kAdmitted:
      return refuse(client, id, "shutting_down", "the daemon is stopping");
  }
}

void ControlServer::handle(ClientId client, const RequestId& id, const TokenizeRequest& request) {
  json results = json::array();
  for (const std::string& text : request.texts) {
    try {
      const EncodedPrompt prompt = encode_prompt(*parts_.tokenizer, text, prompt_limits_.max_tokens);
      const std::vector<std::int32_t> ids = request.as_prompts ? prompt.ids : parts_.tokenizer->encode(text);
      results.push_back({{"ids", ids}, {"count", ids.size()}, {"truncated", prompt.truncated}});
    } catch (const TokenizerError& error) {
      results.push_back({{"error", {{"code", "bad_text"}, {"message", error.what()}}}});
    }
  }
  server_.send(client, ok_reply(id, {{"texts", std::move(results)}}));
}

void ControlServer::handle(ClientId client, const RequestId& id, const InfoRequest&) {
  server_.send(client, ok_reply(id, info_fields(facts_)));
}

void ControlServer::handle(ClientId client, const RequestId& id, const HealthRequest&) {
  server_.send(client, ok_reply(id, health_fields(facts_, live_state())));
}

void ControlServer::handle(ClientId client, const RequestId& id, const MetricsRequest&) {
  set_gauges(parts_.metrics, facts_, live_state());
  server_.send(client, ok_reply(id, {{"text", parts_.metrics.text()}}));
}

void ControlServer::handle(ClientId client, const RequestId& id, const CancelRequest& request) {
  const JobId job = find_target(client, request);
  if (job == 0)
    return refuse(client, id, "not_found", "no encode of that job, name or request waits or runs");
  const bool cancelled = parts_.queue.remove(job, "cancelled", "it was cancelled").has_value();
  if (cancelled) answer_failure(job, "cancelled", "it was cancelled");
  server_.send(
      client,
      ok_reply(id, {{"job", job}, {"cancelled", cancelled}, {"state", cancelled ? "cancelled" : "running"}}));
}

void ControlServer::handle(ClientId client, const RequestId& id, const SwitchRequest& request) {
  try {
    give_order(client, id, OrderKind::kReconfigure, wanted_change(facts_.config, request));
  } catch (const ConfigError& error) {
    refuse(client, id, "bad_request", error.what());
  }
}

void ControlServer::handle(ClientId client, const RequestId& id, const SleepRequest&) {
  give_order(client, id, OrderKind::kSleep);
}

void ControlServer::handle(ClientId client, const RequestId& id, const WakeRequest&) {
  give_order(client, id, OrderKind::kWake);
}

void ControlServer::give_order(ClientId client, const RequestId& id, OrderKind kind, std::string settings) {
  if (draining_) return refuse(client, id, "shutting_down", "the daemon is stopping");
  if (is_duplicate(client, id)) return refuse_duplicate(client, id);
  if (!desk_.give({client, id}, kind, std::move(settings)))
    refuse(client, id, "queue_full", "too many switches, sleeps and wakes wait already; try again later");
}

void ControlServer::hear(OutsideWord word) {
  if (word == OutsideWord::kStop) begin_drain();
  if (word == OutsideWord::kReload && !draining_) desk_.reload(facts_.config);
}

void ControlServer::handle(ClientId client, const RequestId& id, const ShutdownRequest&) {
  shutdown_requests_.emplace_back(client, id);
  begin_drain();
}

void ControlServer::refuse(ClientId client, const RequestId& id, const std::string& code,
                           const std::string& message) {
  server_.send(client, error_reply(id, code, message));
}

JobId ControlServer::find_target(ClientId client, const CancelRequest& request) const {
  if (request.job) return owed_.count(*request.job) > 0 ? *request.job : 0;
  if (request.request) {
    const auto owed = owed_by_client_.find(client);
    if (owed == owed_by_client_.end()) return 0;
    const auto found = owed->second.find(*request.request);
    return found == owed->second.end() ? 0 : found->second;
  }
  const auto named = std::find_if(owed_.begin(), owed_.end(), [&](const auto& entry) {
    return entry.second.context.name == *request.name;
  });
  return named == owed_.end() ? 0 : named->first;
}

void ControlServer::refuse_duplicate(ClientId client, const RequestId& id) {
  refuse(client, id, "duplicate_id", "a request with this id still waits for its reply on this connection");
}

bool ControlServer::is_duplicate(ClientId client, const RequestId& id) const {
  if (desk_.owes(client, id)) return true;
  const auto owed = owed_by_client_.find(client);
  return owed != owed_by_client_.end() && owed->second.count(id) > 0;
}

void ControlServer::begin_drain() {
  if (draining_) return;
  draining_ = true;
  spdlog::info("stopping: {} jobs wait or run", parts_.queue.num_waiting() + parts_.queue.num_running());
  drain_deadline_ = Clock::now() + std::chrono::milliseconds(facts_.config.drain_ms);
  server_.stop_listening();
  for (const OrderDesk::Giver& giver : desk_.withdraw_all())
    refuse(giver.client, giver.request, "shutting_down", "the daemon stops instead");
  parts_.queue.close();
}

void ControlServer::end_waiting_jobs() {
  const std::string code = "shutting_down";
  const std::string message = "the daemon stopped before this request had its turn";
  for (const QueuedJob& job : parts_.queue.remove_all(code, message))
    answer_failure(job.job.id, code, message);
  // A job that ran may be put back yet.
  drain_deadline_ = Clock::now() + std::chrono::milliseconds(100);
}

void ControlServer::take_changes() {
  const std::lock_guard lock(mutex_);
  if (changed_) facts_ = std::move(*changed_);
  changed_.reset();
}

void ControlServer::answer_orders() {
  std::vector<std::pair<std::uint64_t, OrderOutcome>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  // What an order has changed was told before its end.
  take_changes();
  for (const auto& [ticket, outcome] : ended) {
    parts_.metrics.add("gemmad_orders_total{result=\"" + (outcome.done ? std::string("ok") : outcome.code) +
                       "\"}");
    if (const auto giver = desk_.take_giver(ticket))
      server_.send(giver->client, order_reply(giver->request, outcome, facts_));
  }
}

void ControlServer::answer_completed() {
  std::vector<CompletedJob> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(completed_);
  }
  for (const CompletedJob& job : jobs)
    answer(job);
}

void ControlServer::answer_expired() {
  for (const QueuedJob& job : parts_.queue.take_expired(Clock::now()))
    answer_failure(job.job.id, job.expiry_code, job.expiry_message);
}

void ControlServer::answer_failure(JobId job, const std::string& code, const std::string& message) {
  CompletedJob failed;
  failed.id = job;
  failed.outcome.failure = {code, message};
  answer(failed);
}

void ControlServer::answer(const CompletedJob& job) {
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
  server_.send(client, encode_reply(context, job));
  const auto by_client = owed_by_client_.find(client);
  if (by_client != owed_by_client_.end()) {
    by_client->second.erase(context.id);
    if (by_client->second.empty()) owed_by_client_.erase(by_client);
  }
  owed_.erase(owed);
}

void ControlServer::say_goodbye() {
  for (const auto& [client, id] : shutdown_requests_)
    server_.send(client, ok_reply(id, {{"stopped", true}}));
  shutdown_requests_.clear();
  for (ClientId client : clients_)
    server_.close_after_flush(client);
  const auto until = Clock::now() + kGoodbyeTime;
  while (server_.num_clients() > 0 && Clock::now() < until)
    server_.run_once(std::chrono::milliseconds(50));
}

}  // namespace gemmad
