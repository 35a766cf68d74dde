// Rank 0's control thread: serves the control socket, admits encodes, answers them when the engine is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/line_server.h"
#include "daemon/admission.h"
#include "daemon/completion.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/protocol.h"
#include "daemon/rank_status.h"
#include "daemon/replies.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// What the control thread works with. All must outlive the server.
struct ControlParts {
  const DaemonFacts& facts;
  const Tokenizer& tokenizer;
  JobQueue& queue;
  StatusBoard& status;
  Metrics& metrics;
};

/// A stop request from outside the socket, seen as a readable descriptor.
struct StopSource {
  int fd = -1;
  /// Takes what made `fd` readable. True: stop. On the control thread.
  std::function<bool()> take;
};

/// Runs the thread "control" from construction until the engine has drained. Everything but completed(),
/// drained() and join() happens on that thread.
class ControlServer final : public CompletionSink, private LineServer::Handler {
 public:
  ControlServer(UnixListener listener, ControlParts parts, std::vector<StopSource> stop_sources);
  /// Ends the thread without answering what is left, and waits for it.
  ~ControlServer() override;

  void completed(std::vector<CompletedJob> jobs) override;
  void drained() override;

  /// Waits for the thread, which ends after drained(), when clients have their replies (2 s at most). Throws
  /// std::runtime_error when it ended by an error instead.
  void join();

 private:
  using ClientId = LineServer::ClientId;

  /// An encode that was admitted and has no reply yet.
  struct Owed {
    ClientId client = 0;
    EncodeContext context;
  };

  void on_connect(ClientId client) override;
  void on_line(ClientId client, std::string_view line) override;
  void on_line_too_long(ClientId client) override;
  void on_disconnect(ClientId client) override;
  bool keeps_half_closed(ClientId client) override;

  void run();
  void handle(ClientId client, const RequestId& id, const EncodeRequest& request);
  void handle(ClientId client, const RequestId& id, const TokenizeRequest& request);
  void handle(ClientId client, const RequestId& id, const InfoRequest& request);
  void handle(ClientId client, const RequestId& id, const HealthRequest& request);
  void handle(ClientId client, const RequestId& id, const MetricsRequest& request);
  void handle(ClientId client, const RequestId& id, const CancelRequest& request);
  void handle(ClientId client, const RequestId& id, const ShutdownRequest& request);

  void refuse(ClientId client, const RequestId& id, const std::string& code, const std::string& message);
  void refuse_admission(ClientId client, const RequestId& id, JobQueue::Admission admission,
                        const std::string& name);
  JobId find_target(ClientId client, const CancelRequest& request) const;
  bool is_duplicate(ClientId client, const RequestId& id) const;
  void begin_drain();
  void end_waiting_jobs();
  void answer_completed();
  void answer_expired();
  void answer(const CompletedJob& job);
  void answer_failure(JobId job, const std::string& code, const std::string& message);
  void say_goodbye();
  std::chrono::milliseconds time_to_next_deadline() const;
  LiveState live_state() const;

  ControlParts parts_;
  ProtocolLimits protocol_limits_;
  PromptLimits prompt_limits_;
  LineServer server_;
  JobId next_job_ = 1;
  std::map<JobId, Owed> owed_;
  std::unordered_map<ClientId, std::map<RequestId, JobId>> owed_by_client_;
  std::vector<std::pair<ClientId, RequestId>> shutdown_requests_;
  std::set<ClientId> clients_;
  bool draining_ = false;
  std::optional<Clock::time_point> drain_deadline_;  // while draining: when what waits is ended

  std::mutex mutex_;  // of the three below
  std::vector<CompletedJob> completed_;
  bool drained_ = false;
  bool abandoned_ = false;

  std::string failure_;  // why the thread ended before its time; read after join
  std::thread thread_;
};

}  // namespace gemmad
