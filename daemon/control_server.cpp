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

ProtocolLimits make_limits(const DaemonFacts& facts) {
  ProtocolLimits limits;
  limits.max_line_bytes = static_cast<std::size_t>(facts.config.max_line_bytes);
  limits.max_prompts = facts.config.max_prompts;
  limits.num_layers = facts.model.num_layers;
  limits.takes_text = facts.has_tokenizer;
  limits.has_processor = facts.processor.has_value();
  limits.has_enhancer = facts.enhancer.has_value();
  if (!facts.enhancer) return limits;
  limits.has_vision = facts.enhancer->has_vision;
  limits.enhancer_vocab_size = facts.enhancer->vocab_size;
  limits.enhance_context = facts.config.enhance_context;
  return limits;
}

}  // namespace

ControlServer::ControlServer(UnixListener listener, ControlParts parts, DaemonFacts facts,
                             std::vector<OutsideSource> sources, std::function<DaemonConfig()> load_settings)
    : parts_(std::move(parts)),
      facts_(std::move(facts)),
      protocol_limits_(make_limits(facts_)),
      prompt_limits_{facts_.config.max_tokens, facts_.model.vocab_size},
      server_(std::move(listener), line_limits(facts_.config), *this),
      orders_(parts_.queue, std::move(load_settings)),
      encodes_({parts_.tokenizer, parts_.queue, parts_.metrics, ids_, sender(), prompt_limits_,
                facts_.config.queue_length}),
      enhancements_({parts_.queue, parts_.metrics, ids_, sender(),
                     [this](const Asker& asker, const EncodeRequest& request, RequestTimes times,
                            std::string enhanced) { admit(asker, request, times, std::move(enhanced)); },
                     parts_.render, [this] { server_.wake(); },
                     static_cast<std::size_t>(facts_.config.enhance_queue), facts_.config.enhance_context}) {
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

SendLine ControlServer::sender() {
  return [this](ClientId client, const std::string& line) { server_.send(client, line); };
}

LiveState ControlServer::live_state() const {
  LiveState state;
  state.draining = draining_;
  state.num_waiting = parts_.queue.num_waiting();
  state.num_running = parts_.queue.num_running();
  state.num_enhancements_waiting = enhancements_.num_waiting();
  state.num_enhancements_running = enhancements_.num_running();
  state.num_clients = server_.num_clients();
  state.ranks = parts_.status.snapshot();
  return state;
}

void ControlServer::hand_over(const std::function<void()>& put) {
  {
    const std::lock_guard lock(mutex_);
    put();
  }
  server_.wake();
}

void ControlServer::completed(std::vector<CompletedJob> jobs) {
  hand_over([&] { std::move(jobs.begin(), jobs.end(), std::back_inserter(news_.completed)); });
}

void ControlServer::generated(std::vector<GeneratedPiece> pieces) {
  hand_over([&] { std::move(pieces.begin(), pieces.end(), std::back_inserter(news_.generated)); });
}

void ControlServer::enhanced(EnhancementOutcome outcome) {
  hand_over([&] { news_.enhanced.push_back(std::move(outcome)); });
}

void ControlServer::changed(DaemonFacts facts) {
  hand_over([&] { news_.changed = std::move(facts); });
}

void ControlServer::ended(std::uint64_t ticket, OrderOutcome outcome) {
  hand_over([&] { news_.ended.emplace_back(ticket, std::move(outcome)); });
}

void ControlServer::drained() {
  hand_over([&] { news_.drained = true; });
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
      News news;
      {
        const std::lock_guard lock(mutex_);
        if (abandoned_) return;
        news = std::exchange(news_, {});
      }
      const bool drained = news.drained;
      tell(std::move(news));
      if (drained) return say_goodbye();
      enhancements_.take_rendered();
      encodes_.answer_expired();
      if (draining_) go_on_draining();
    }
  } catch (const std::exception& error) {
    // Without this thread the daemon hears nobody: let the engine finish what it has and leave.
    failure_ = error.what();
    parts_.queue.close();
  }
}

std::chrono::milliseconds ControlServer::time_to_sleep() const {
  if (encodes_.owes() && Clock::now() < busy_until_) return std::chrono::milliseconds(0);
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
    Request request = parse_request(line, protocol_limits_);
    parts_.metrics.add("gemmad_requests_total{op=\"" + std::string(request.op) + "\"}");
    std::visit([&](auto& command) { handle(client, request.id, std::move(command)); }, request.command);
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
  orders_.forget(client);
  encodes_.forget(client);
  enhancements_.forget(client);
}

bool ControlServer::keeps_half_closed(ClientId client) {
  if (encodes_.owes(client) || enhancements_.owes(client) || orders_.owes(client)) return true;
  return std::any_of(shutdown_requests_.begin(), shutdown_requests_.end(),
                     [&](const Asker& asker) { return asker.client == client; });
}

RequestTimes ControlServer::times_of(std::optional<std::int64_t> deadline_ms) const {
  const auto now = Clock::now();
  return {now, now + std::chrono::milliseconds(deadline_ms.value_or(facts_.config.deadline_ms))};
}

bool ControlServer::takes_work(ClientId client, const RequestId& id) {
  if (draining_) {
    refuse(client, id, "shutting_down", "the daemon is stopping");
  } else if (encodes_.owes(client, id) || enhancements_.owes(client, id) || orders_.owes(client, id)) {
    refuse(client, id, "duplicate_id", "a request with this id still waits for its reply on this connection");
  } else {
    return true;
  }
  return false;
}

void ControlServer::handle(ClientId client, const RequestId& id, EncodeRequest&& request) {
  if (!takes_work(client, id)) return;
  const RequestTimes times = times_of(request.deadline_ms);
  if (request.enhance) return enhancements_.take({client, id}, std::move(request), times);
  if (!request.name.empty() && enhancements_.holds_name(request.name)) {
    const JobFailure failure = admission_failure(JobQueue::Admission::kNameWaits, request.name, {});
    return refuse(client, id, failure.code, failure.message);
  }
  admit({client, id}, request, times, {});
}

void ControlServer::admit(const Asker& asker, const EncodeRequest& request, RequestTimes times,
                          std::string enhanced) {
  if (encodes_.admit(asker, request, times, std::move(enhanced)))
    busy_until_ = Clock::now() + parts_.busy_time;
}

void ControlServer::handle(ClientId client, const RequestId& id, EnhanceRequest&& request) {
  if (!takes_work(client, id)) return;
  const RequestTimes times = times_of(request.deadline_ms);
  enhancements_.take({client, id}, std::move(request), times);
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
  const auto answer = [&](JobId job, bool cancelled, const char* state) {
    server_.send(client, ok_reply(id, {{"job", job}, {"cancelled", cancelled}, {"state", state}}));
  };
  if (const JobId job = encodes_.find(client, request)) {
    const bool cancelled = encodes_.cancel(job);
    return answer(job, cancelled, cancelled ? "cancelled" : "running");
  }
  if (const JobId job = enhancements_.find(client, request))
    return answer(job, true, enhancements_.cancel(job) ? "cancelled" : "ending");
  refuse(client, id, "not_found", "no encode or enhancement of that job, name or request waits or runs");
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
  if (!takes_work(client, id)) return;
  if (!orders_.give({client, id}, kind, std::move(settings)))
    refuse(client, id, "queue_full", "too many switches, sleeps and wakes wait already; try again later");
}

void ControlServer::hear(OutsideWord word) {
  if (word == OutsideWord::kStop) begin_drain();
  if (word == OutsideWord::kReload && !draining_) orders_.reload(facts_.config);
}

void ControlServer::handle(ClientId client, const RequestId& id, const ShutdownRequest&) {
  shutdown_requests_.push_back({client, id});
  begin_drain();
}

void ControlServer::refuse(ClientId client, const RequestId& id, const std::string& code,
                           const std::string& message) {
  server_.send(client, error_reply(id, code, message));
}

void ControlServer::begin_drain() {
  if (draining_) return;
  draining_ = true;
  spdlog::info("stopping: {} jobs and {} enhancements wait or run",
               parts_.queue.num_waiting() + parts_.queue.num_running(),
               enhancements_.num_waiting() + enhancements_.num_running());
  drain_deadline_ = Clock::now() + std::chrono::milliseconds(facts_.config.drain_ms);
  server_.stop_listening();
  for (const Asker& giver : orders_.withdraw_all())
    refuse(giver.client, giver.request, "shutting_down", "the daemon stops instead");
  go_on_draining();
}

void ControlServer::go_on_draining() {
  if (Clock::now() >= *drain_deadline_) {
    const std::string message = "the daemon stops, and drain_ms (" + std::to_string(facts_.config.drain_ms) +
                                ") was over before this was done";
    enhancements_.end_all("shutting_down", message);
    encodes_.end_waiting("shutting_down", message);
    // A job that ran may be put back yet.
    drain_deadline_ = Clock::now() + std::chrono::milliseconds(100);
  }
  // The engine leaves when the queue is closed and empty.
  if (!enhancements_.will_queue()) parts_.queue.close();
}

void ControlServer::take_changes() {
  const std::lock_guard lock(mutex_);
  if (news_.changed) facts_ = std::move(*news_.changed);
  news_.changed.reset();
}

void ControlServer::tell(News news) {
  // What an order has changed was told before its end.
  if (news.changed) facts_ = std::move(*news.changed);
  for (const auto& [ticket, outcome] : news.ended) {
    parts_.metrics.add("gemmad_orders_total{result=\"" + (outcome.done ? std::string("ok") : outcome.code) +
                       "\"}");
    if (const auto giver = orders_.take_giver(ticket))
      server_.send(giver->client, order_reply(giver->request, outcome, facts_));
  }
  for (const CompletedJob& job : news.completed)
    encodes_.answer(job);
  // All that is handed over together: the pieces of one come before its end.
  for (const GeneratedPiece& piece : news.generated)
    enhancements_.generated(piece);
  for (const EnhancementOutcome& outcome : news.enhanced)
    enhancements_.enhanced(outcome);
}

void ControlServer::say_goodbye() {
  for (const Asker& asker : shutdown_requests_)
    server_.send(asker.client, ok_reply(asker.request, {{"stopped", true}}));
  shutdown_requests_.clear();
  for (ClientId client : clients_)
    server_.close_after_flush(client);
  const auto until = Clock::now() + kGoodbyeTime;
  while (server_.num_clients() > 0 && Clock::now() < until)
    server_.run_once(std::chrono::milliseconds(50));
}

}  // namespace gemmad
