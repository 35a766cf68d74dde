// Admitted jobs, and orders, that wait for the engine: bounded, first in first out. Between the control
// thread and rank 0's engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/enhancement.h"
#include "daemon/job.h"
#include "daemon/order.h"

namespace gemmad {

using Clock = std::chrono::steady_clock;

struct QueuedJob {
  Job job;
  Clock::time_point submitted;
  Clock::time_point deadline;
  // What it fails with at its deadline: that it never had its turn, or what it waited for.
  std::string expiry_code = "deadline";
  std::string expiry_message = "its deadline passed before it could run";
};

/// Thread-safe.
class JobQueue {
 public:
  /// `max_enhancements`: that wait or run.
  explicit JobQueue(std::size_t max_jobs, std::size_t max_enhancements = 64)
      : max_jobs_(max_jobs), max_enhancements_(max_enhancements) {}

  enum class Admission { kAdmitted, kFull, kNameWaits /* a job of this name waits or runs */, kClosed };

  /// A job will come in a moment: `take` wakes and looks out for it busily, so that it is taken at once.
  void expect();

  /// Never waits.
  Admission push(QueuedJob job);

  /// The same for an enhancement; the engine takes it at once, and keeps it. A name may be used by jobs and
  /// enhancements once at a time.
  Admission push(QueuedEnhancement enhancement);
  /// The engine is to end this enhancement with `code` and `message`. Nothing happens where it has ended.
  void give_up(JobId enhancement, const std::string& code, const std::string& message);
  /// The readers of a job or an enhancement that will never be pushed hear why.
  void tell_readers(FailureNotice failure);
  /// Whether a job or an enhancement of this name waits or runs.
  bool has_name(const std::string& name) const;
  /// Enhancements that were taken have ended: they count no more, and their names are free.
  void ended(JobId enhancement);

  /// Orders go before jobs. False, and nothing happens, when closed or when too many wait.
  bool push(Order order);
  /// False when the order with this ticket does not wait (any more).
  bool remove_order(std::uint64_t ticket);

  struct Work {
    std::vector<Order> orders;  // then there are no jobs
    std::vector<QueuedJob> jobs;
    std::vector<FailureNotice> failures;  // of jobs that will not run; readers must hear
    std::vector<QueuedEnhancement> enhancements;
    std::vector<FailureNotice> given_up;  // enhancements; may have ended
    bool closed = false;                  // and nothing is left to do
    bool empty() const {
      return orders.empty() && jobs.empty() && failures.empty() && enhancements.empty() && given_up.empty();
    }
  };

  /// Waits up to `timeout` for work; then takes jobs from the front up to `max_tokens` together, at least
  /// one, and one that is alone by itself; or all orders that wait. Jobs past their deadline stay, for
  /// take_expired. Empty after the timeout or when closed.
  Work take(std::int64_t max_tokens, std::chrono::milliseconds timeout);

  /// Gives jobs of the last `take` back to the front, in their order; none is taken again before
  /// `not_before`.
  void put_back(std::vector<QueuedJob> jobs, Clock::time_point not_before);

  /// The jobs of the last `take` have ended, but for those put back: their names are free again.
  void finished();

  /// Removes a waiting job; its readers hear `code` and `message`. Empty when it does not wait (any more).
  std::optional<QueuedJob> remove(JobId id, const std::string& code, const std::string& message);

  /// Removes every waiting job; their readers hear `code` and `message`.
  std::vector<QueuedJob> remove_all(const std::string& code, const std::string& message);

  /// Removes every waiting job past its deadline; their readers hear the reason.
  std::vector<QueuedJob> take_expired(Clock::time_point now);

  /// When the next waiting job will be past its deadline.
  std::optional<Clock::time_point> next_deadline() const;

  /// Admits nothing more; `take` goes on until nothing waits.
  void close();

  std::size_t num_waiting() const;
  std::size_t num_running() const;
  /// That wait or run.
  std::size_t num_enhancements() const;

 private:
  bool name_is_taken(const std::string& name) const;
  bool has_work(Clock::time_point now) const;
  /// Closed, and nothing waits, nor runs beside the batches.
  bool is_drained() const { return closed_ && waiting_.empty() && open_enhancements_.empty(); }

  struct NamedEnhancement {
    JobId id = 0;
    std::string name;
  };

  const std::size_t max_jobs_;
  const std::size_t max_enhancements_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Order> orders_;
  std::deque<QueuedJob> waiting_;
  std::vector<std::string> running_names_;
  std::size_t num_running_ = 0;
  std::vector<FailureNotice> failures_;
  std::vector<QueuedEnhancement> enhancements_;      // not taken yet
  std::vector<NamedEnhancement> open_enhancements_;  // not ended yet
  std::vector<FailureNotice> given_up_;              // not taken yet
  Clock::time_point not_before_{};
  Clock::time_point expected_until_{};
  bool closed_ = false;
};

}  // namespace gemmad
