// Takes enhancements, alone or before an encode, and answers for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/desk.h"
#include "daemon/enhancement.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/prompt_renderer.h"
#include "daemon/protocol.h"

namespace gemmad {

/// Used by the control thread alone. A request goes from the renderer to the queue, where the engine takes
/// it, and ends with the engine's word; an encode follows then, with the text in place of its first prompt.
/// Deadlines are kept by the engine and, of encodes, by the queue.
class EnhanceDesk {
 public:
  using ClientId = LineServer::ClientId;
  /// Admits the encode whose first prompt is now the enhanced one, or refuses it in a reply. `enhanced`: what
  /// its reply says of that prompt.
  using AdmitEncode = std::function<void(const Asker& asker, const EncodeRequest& request, RequestTimes times,
                                         std::string enhanced)>;

  /// All that is referred to must outlive the desk.
  struct Parts {
    JobQueue& queue;
    Metrics& metrics;
    JobIds& ids;
    SendLine send;
    AdmitEncode admit_encode;
    RenderPrompt render;                // empty: no request ever comes
    std::function<void()> on_rendered;  // from the renderer's thread: call take_rendered() soon
    std::size_t max_requests = 64;      // that wait or run
    std::int64_t context = 4096;        // most tokens of a prompt and its continuation
  };

  explicit EnhanceDesk(Parts parts);

  /// Each takes over the request, or refuses it in a reply.
  void take(const Asker& asker, EnhanceRequest request, RequestTimes times);
  /// `request.enhance` is set.
  void take(const Asker& asker, EncodeRequest request, RequestTimes times);

  /// Goes on with what the renderer has done.
  void take_rendered();
  void generated(const GeneratedPiece& piece);
  void enhanced(const EnhancementOutcome& outcome);

  /// As EncodeDesk::find.
  JobId find(ClientId client, const CancelRequest& request) const;
  /// Gives up one that waits or runs. True: it has been answered for. False: its reply comes soon, and tells
  /// whether this was in time.
  bool cancel(JobId job);
  /// The client has gone: what it asked for is given up.
  void forget(ClientId client);
  /// Gives up everything.
  void end_all(const std::string& code, const std::string& message);

  bool owes(ClientId client) const;
  bool owes(ClientId client, const RequestId& request) const;
  /// Whether one of that name is yet to be queued.
  bool holds_name(const std::string& name) const;
  /// Whether something is yet to be queued: the queue must not be closed.
  bool will_queue() const;
  std::size_t num_waiting() const { return owed_.size() - num_running(); }
  std::size_t num_running() const;

 private:
  enum class Stage : std::uint8_t { kRendering, kQueued, kRunning };

  struct Owed {
    Asker asker;
    RequestTimes times;
    Stage stage = Stage::kRendering;
    bool streams = false;
    std::optional<std::int64_t> max_new_tokens;  // as asked for
    Enhancement enhancement;                     // until it is queued; then only id and name
    std::optional<EncodeRequest> encode;         // that follows
    std::optional<JobFailure> given_up;          // the engine has been told so
  };
  using Entries = std::map<JobId, Owed>;

  void begin(Owed owed, std::string prompt, EnhanceOptions options);
  void queue(Owed& owed, RenderedPrompt prompt);
  /// Sets ids, image and the number of tokens. Where they do not fit, tells why.
  std::optional<JobFailure> fill(Owed& owed, RenderedPrompt prompt) const;
  /// Stops the work for it. True: nothing more will be heard of it. False: the engine has the last word.
  bool withdraw(Owed& owed, const JobFailure& reason);
  /// Ends one that the engine has not.
  void fail(Owed& owed, const JobFailure& failure);
  void answer(const Owed& owed, const JobFailure& failure);
  void tell_readers(const Owed& owed, const JobFailure& failure);
  void refuse(const Asker& asker, const JobFailure& failure);
  void count(const std::string& result);

  Parts parts_;
  Entries owed_;
  std::optional<PromptRenderer> renderer_;  // last: its thread calls on_rendered
};

}  // namespace gemmad
