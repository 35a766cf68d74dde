// Rank 0's control thread: serves the control socket, and has desks take requests and answer them when the
// engine is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/line_server.h"
#include "daemon/completion.h"
#include "daemon/desk.h"
#include "daemon/encode_desk.h"
#include "daemon/enhance_desk.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/order_desk.h"
#include "daemon/prompt_renderer.h"
#include "daemon/protocol.h"
#include "daemon/rank_status.h"
#include "daemon/replies.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// What the control thread works with. All must outlive the server.
struct ControlParts {
  const Tokenizer* tokenizer;  // null where the model has none: text is refused
  JobQueue& queue;
  StatusBoard& status;
  Metrics& metrics;
  // A job may come in a moment: wakes those who will run it while the request is read. Never waits.
  std::function<void()> alert;
  RenderPrompt render;                    // on a thread of its own; may be empty where facts have no enhancer
  std::chrono::microseconds busy_time{};  // see busy_time.h
};

/// What reaches the daemon from outside the socket.
enum class OutsideWord { kNothing, kStop, kReload /* read the settings again */ };

/// A readable descriptor that brings such a word.
struct OutsideSource {
  int fd = -1;
  /// Takes what made `fd` readable. On the control thread.
  std::function<OutsideWord()> take;
};

/// Runs the thread "control" from construction until the engine has drained. Everything but the calls of
/// CompletionSink and join() happens on that thread.
class ControlServer final : public CompletionSink, private LineServer::Handler {
 public:
  /// `facts`: how the daemon stands at the start. `load_settings` reads the settings anew, on the control
  /// thread; throws ConfigError.
  ControlServer(UnixListener listener, ControlParts parts, DaemonFacts facts,
                std::vector<OutsideSource> sources, std::function<DaemonConfig()> load_settings);
  /// Ends the thread without answering what is left, and waits for it.
  ~ControlServer() override;

  void completed(std::vector<CompletedJob> jobs) override;
  void generated(std::vector<GeneratedPiece> pieces) override;
  void enhanced(EnhancementOutcome outcome) override;
  void changed(DaemonFacts facts) override;
  void ended(std::uint64_t ticket, OrderOutcome outcome) override;
  void drained() override;

  /// Waits for the thread, which ends after drained(), when clients have their replies (2 s at most). Throws
  /// std::runtime_error when it ended by an error instead.
  void join();

 private:
  using ClientId = LineServer::ClientId;

  /// What others have handed over since the control thread looked last.
  struct News {
    std::vector<CompletedJob> completed;
    std::vector<GeneratedPiece> generated;
    std::vector<EnhancementOutcome> enhanced;
    std::vector<std::pair<std::uint64_t, OrderOutcome>> ended;
    std::optional<DaemonFacts> changed;
    bool drained = false;
  };

  void on_connect(ClientId client) override;
  void on_line(ClientId client, std::string_view line) override;
  void on_line_too_long(ClientId client) override;
  void on_disconnect(ClientId client) override;
  bool keeps_half_closed(ClientId client) override;

  void hand_over(const std::function<void()>& put);
  void run();
  void handle(ClientId client, const RequestId& id, EncodeRequest&& request);
  void handle(ClientId client, const RequestId& id, EnhanceRequest&& request);
  void handle(ClientId client, const RequestId& id, const TokenizeRequest& request);
  void handle(ClientId client, const RequestId& id, const InfoRequest& request);
  void handle(ClientId client, const RequestId& id, const HealthRequest& request);
  void handle(ClientId client, const RequestId& id, const MetricsRequest& request);
  void handle(ClientId client, const RequestId& id, const CancelRequest& request);
  void handle(ClientId client, const RequestId& id, const SwitchRequest& request);
  void handle(ClientId client, const RequestId& id, const SleepRequest& request);
  void handle(ClientId client, const RequestId& id, const WakeRequest& request);
  void handle(ClientId client, const RequestId& id, const ShutdownRequest& request);
  void hear(OutsideWord word);
  void give_order(ClientId client, const RequestId& id, OrderKind kind, std::string settings = {});

  void refuse(ClientId client, const RequestId& id, const std::string& code, const std::string& message);
  /// False, and refused, where work cannot be taken from this request.
  bool takes_work(ClientId client, const RequestId& id);
  RequestTimes times_of(std::optional<std::int64_t> deadline_ms) const;
  void admit(const Asker& asker, const EncodeRequest& request, RequestTimes times, std::string enhanced);
  void begin_drain();
  void go_on_draining();
  void take_changes();
  void tell(News news);
  void say_goodbye();
  std::chrono::milliseconds time_to_sleep() const;
  LiveState live_state() const;
  SendLine sender();

  ControlParts parts_;
  DaemonFacts facts_;
  ProtocolLimits protocol_limits_;
  PromptLimits prompt_limits_;
  LineServer server_;
  JobIds ids_;
  OrderDesk orders_;
  EncodeDesk encodes_;
  EnhanceDesk enhancements_;        // after the server, which its renderer wakes
  Clock::time_point busy_until_{};  // looks out for completions without sleeping
  std::vector<Asker> shutdown_requests_;
  std::set<ClientId> clients_;
  bool draining_ = false;
  std::optional<Clock::time_point> drain_deadline_;  // while draining: when what waits is ended

  std::mutex mutex_;  // of the two below
  News news_;
  bool abandoned_ = false;

  std::string failure_;  // why the thread ended before its time; read after join
  std::thread thread_;
};

}  // namespace gemmad
