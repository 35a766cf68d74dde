// Takes encodes, and answers them when the engine is done.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "daemon/admission.h"
#include "daemon/completion.h"
#include "daemon/desk.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/protocol.h"
#include "daemon/replies.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// Used by the control thread alone.
class EncodeDesk {
 public:
  using ClientId = LineServer::ClientId;

  /// All that is referred to must outlive the desk.
  struct Parts {
    const Tokenizer* tokenizer;  // null where the model has none: no prompt is text then
    JobQueue& queue;
    Metrics& metrics;
    JobIds& ids;
    SendLine send;
    PromptLimits limits;
    std::int64_t queue_length = 0;  // for messages
  };

  explicit EncodeDesk(Parts parts) : parts_(std::move(parts)) {}

  /// Queues a job. Where that cannot be the asker hears why, and false is returned. `enhanced`: what its
  /// reply says of the first prompt, a JSON object; empty: nothing.
  bool admit(const Asker& asker, const EncodeRequest& request, RequestTimes times, std::string enhanced = {});

  /// Answers the one who asked for it, if anybody still waits.
  void answer(const CompletedJob& job);
  void answer_expired();
  /// Gives up what waits in the queue.
  void end_waiting(const std::string& code, const std::string& message);

  /// The job that the request means, among those that wait or run; 0: none.
  JobId find(ClientId client, const CancelRequest& request) const;
  /// Gives up a job that waits, and answers for it. False: it runs already.
  bool cancel(JobId job);
  /// The client has gone: what it has waiting is given up.
  void forget(ClientId client);

  bool owes() const { return !owed_.empty(); }
  bool owes(ClientId client) const { return by_client_.count(client) > 0; }
  bool owes(ClientId client, const RequestId& request) const;

 private:
  struct Owed {
    ClientId client = 0;
    EncodeContext context;
  };

  void answer_failure(JobId job, const std::string& code, const std::string& message);

  Parts parts_;
  std::map<JobId, Owed> owed_;
  std::unordered_map<ClientId, std::map<RequestId, JobId>> by_client_;
};

}  // namespace gemmad
