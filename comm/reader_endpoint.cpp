#include "comm/reader_endpoint.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "comm/reader_protocol.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;
using ClientId = LineServer::ClientId;

template <typename... Functions>
struct Overload : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overload(Functions...) -> Overload<Functions...>;

std::string describe(const ResultKey& key) {
  if (const auto* job = std::get_if<JobId>(&key)) return "job " + std::to_string(*job);
  return "name " + std::get<std::string>(key);
}

}  // namespace

class ReaderEndpoint::Loop final : public LineServer::Handler {
 public:
  Loop(UnixListener listener, LineServer::Limits limits, Segment& segment, ResultStore& store,
       Options options)
      : path_(listener.path()),
        segment_(segment),
        store_(store),
        options_(std::move(options)),
        max_line_bytes_(limits.max_line_bytes),
        server_(std::make_unique<LineServer>(std::move(listener), std::move(limits), *this)) {
    for (Watch& watch : options_.watches)
      server_->watch(watch.fd, std::move(watch.on_readable));
    thread_ = std::thread([this] { run(); });
    store_.set_on_change([this] { look_again(); });
    look_again();  // what was published before that went unheard
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() override { stop(); }

  void stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    server_->wake();
    thread_.join();
    store_.set_on_change({});
    end_connections();
    server_.reset();
  }

  const std::string& path() const { return path_; }

  void on_connect(ClientId client) override {
    connections_[client];
    server_->send(client, format_greeting(segment_.rank(), segment_.bytes().size()), segment_.fd());
  }
  void on_line(ClientId client, std::string_view line) override;
  void on_line_too_long(ClientId client) override {
    server_->send(client, format_error(std::nullopt, "bad_request",
                                       "a line of more than " + std::to_string(max_line_bytes_) + " bytes"));
  }
  void on_disconnect(ClientId client) override {
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.client == client; });
    store_.release_all(client);
    connections_.erase(client);
  }
  bool keeps_half_closed(ClientId client) override {
    const Connection& connection = connections_.at(client);
    return connection.num_waiting > 0 || connection.num_leases > 0;
  }

 private:
  struct Connection {
    std::size_t num_waiting = 0;
    std::size_t num_leases = 0;
  };
  struct Waiting {
    ClientId client = 0;
    RequestId id = 0;
    ResultKey key;
    Clock::time_point deadline;
  };

  /// From any thread.
  void look_again() {
    changed_ = true;
    server_->wake();
  }
  void run() noexcept;
  void run_until_stopped();
  void serve_waiting();
  bool try_acquire(ClientId client, RequestId id, const ResultKey& key);
  void refuse_late(ClientId client, RequestId id, const ResultKey& key);
  void start_acquire(ClientId client, RequestId id, AcquireRequest request);
  void release(ClientId client, RequestId id, LeaseId lease);
  void end_connections();

  const std::string path_;
  Segment& segment_;
  ResultStore& store_;
  Options options_;
  const std::size_t max_line_bytes_;
  std::unique_ptr<LineServer> server_;
  std::unordered_map<ClientId, Connection> connections_;
  std::vector<Waiting> waiting_;
  std::atomic<bool> changed_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

void ReaderEndpoint::Loop::run() noexcept {
  pthread_setname_np(pthread_self(), "reader");
  std::string reason;
  try {
    return run_until_stopped();
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "an exception that is no std::exception";
  }
  spdlog::error("reader thread of {} ends: {}", path_, reason);
  server_->stop_listening();
  if (options_.on_fatal) options_.on_fatal(reason);
}

void ReaderEndpoint::Loop::run_until_stopped() {
  Clock::time_point expire_at = Clock::now() + options_.expire_every;
  while (!stopping_) {
    Clock::time_point until = expire_at;
    for (const Waiting& waiting : waiting_)
      until = std::min(until, waiting.deadline);
    server_->run_once(std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()));
    serve_waiting();
    if (Clock::now() < expire_at) continue;
    store_.expire();
    expire_at = Clock::now() + options_.expire_every;
  }
}

void ReaderEndpoint::Loop::on_line(ClientId client, std::string_view line) {
  // Who waited longer goes first: a later acquire and release must not see the result off before.
  if (changed_) serve_waiting();
  auto request = parse_reader_request(line);
  if (const auto* bad = std::get_if<BadReaderRequest>(&request)) {
    return server_->send(client, format_error(bad->id, "bad_request", bad->message));
  }
  ReaderRequest& good = std::get<ReaderRequest>(request);
  std::visit(Overload{[&](AcquireRequest& acquire) { start_acquire(client, good.id, std::move(acquire)); },
                      [&](ReleaseRequest& body) { release(client, good.id, body.lease); },
                      [&](PingRequest&) { server_->send(client, format_ok(good.id)); }},
             good.body);
}

void ReaderEndpoint::Loop::start_acquire(ClientId client, RequestId id, AcquireRequest request) {
  if (try_acquire(client, id, request.key)) return;
  if (request.deadline.count() == 0) return refuse_late(client, id, request.key);
  Connection& connection = connections_.at(client);
  if (connection.num_waiting >= options_.max_waiting) {
    return server_->send(client, format_error(id, "too_many_waiting",
                                              "this connection waits for " +
                                                  std::to_string(options_.max_waiting) + " results already"));
  }
  ++connection.num_waiting;
  waiting_.push_back({client, id, std::move(request.key), Clock::now() + request.deadline});
}

void ReaderEndpoint::Loop::release(ClientId client, RequestId id, LeaseId lease) {
  if (!store_.release(lease, client)) {
    return server_->send(
        client, format_error(id, "bad_request", "this connection holds no lease " + std::to_string(lease)));
  }
  --connections_.at(client).num_leases;
  server_->send(client, format_ok(id));
}

/// Answers every acquire whose result is there or whose deadline has passed.
void ReaderEndpoint::Loop::serve_waiting() {
  const bool changed = changed_.exchange(false);
  const Clock::time_point now = Clock::now();
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const bool late = waiting.deadline <= now;
    if (!changed && !late) return false;
    if (!try_acquire(waiting.client, waiting.id, waiting.key)) {
      if (!late) return false;
      refuse_late(waiting.client, waiting.id, waiting.key);
    }
    --connections_.at(waiting.client).num_waiting;
    return true;
  });
}

/// False while there is nothing to answer.
bool ReaderEndpoint::Loop::try_acquire(ClientId client, RequestId id, const ResultKey& key) {
  const AcquireOutcome outcome = store_.acquire(key, client);
  if (std::holds_alternative<Pending>(outcome)) return false;
  if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
    ++connections_.at(client).num_leases;
    server_->send(client, format_acquired(id, *acquired));
  } else if (const auto* failed = std::get_if<Failed>(&outcome)) {
    server_->send(client, format_error(id, failed->failure.code, failed->failure.message));
  } else {
    server_->send(client, format_error(id, "gone", describe(key) + " was done and is no longer kept"));
  }
  return true;
}

void ReaderEndpoint::Loop::refuse_late(ClientId client, RequestId id, const ResultKey& key) {
  server_->send(client,
                format_error(id, "deadline", describe(key) + " has no result yet, and the deadline is over"));
}

void ReaderEndpoint::Loop::end_connections() {
  for (const auto& [client, connection] : connections_)
    store_.release_all(client);
  connections_.clear();
  waiting_.clear();
}

ReaderEndpoint::ReaderEndpoint(UnixListener listener, LineServer::Limits limits, Segment& segment,
                               ResultStore& store, Options options)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(limits), segment, store,
                                   std::move(options))) {}

ReaderEndpoint::ReaderEndpoint(UnixListener listener, LineServer::Limits limits, Segment& segment,
                               ResultStore& store)
    : ReaderEndpoint(std::move(listener), std::move(limits), segment, store, Options{}) {}

ReaderEndpoint::~ReaderEndpoint() = default;

void ReaderEndpoint::stop() {
  loop_->stop();
}

const std::string& ReaderEndpoint::path() const {
  return loop_->path();
}

}  // namespace gemmad
