// What the desks of the control thread have in common: each takes requests of one kind, and owes those who
// asked their replies.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/line_server.h"
#include "daemon/job_queue.h"
#include "daemon/protocol.h"

namespace gemmad {

struct Asker {
  LineServer::ClientId client = 0;
  RequestId request;
};

/// When a request came, and when its time is up.
struct RequestTimes {
  Clock::time_point submitted;
  Clock::time_point deadline;
};

/// Sends a line to a client, or nothing where it has gone. Never waits.
using SendLine = std::function<void(LineServer::ClientId client, const std::string& line)>;

/// Numbers jobs and enhancements alike, each number once.
class JobIds {
 public:
  JobId take() { return next_++; }

 private:
  JobId next_ = 1;
};

/// The error of a request that the queue does not admit. `full`: the message for a full one.
inline JobFailure admission_failure(JobQueue::Admission admission, const std::string& name,
                                    const std::string& full) {
  if (admission == JobQueue::Admission::kFull) return {"queue_full", full};
  if (admission == JobQueue::Admission::kNameWaits)
    return {"name_in_use", "a request named '" + name + "' waits or runs already"};
  return {"shutting_down", "the daemon is stopping"};
}

}  // namespace gemmad
