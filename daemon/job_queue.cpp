#include "daemon/job_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace gemmad {

namespace {
constexpr std::size_t kMaxOrders = 16;
// More than a request takes to be read.
constexpr std::chrono::microseconds kLookOut{200};
}  // namespace

void JobQueue::expect() {
  {
    const std::lock_guard lock(mutex_);
    expected_until_ = Clock::now() + kLookOut;
  }
  changed_.notify_one();
}

JobQueue::Admission JobQueue::push(QueuedJob job) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Admission::kClosed;
    if (waiting_.size() >= max_jobs_) return Admission::kFull;
    if (!job.job.name.empty() && name_is_taken(job.job.name)) return Admission::kNameWaits;
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return Admission::kAdmitted;
}

JobQueue::Admission JobQueue::push(QueuedEnhancement queued) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Admission::kClosed;
    if (open_enhancements_.size() >= max_enhancements_) return Admission::kFull;
    const Enhancement& enhancement = queued.enhancement;
    if (!enhancement.name.empty() && name_is_taken(enhancement.name)) return Admission::kNameWaits;
    open_enhancements_.push_back({enhancement.id, enhancement.name});
    enhancements_.push_back(std::move(queued));
  }
  changed_.notify_one();
  return Admission::kAdmitted;
}

void JobQueue::give_up(JobId enhancement, const std::string& code, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    given_up_.push_back({enhancement, {}, code, message});
  }
  changed_.notify_one();
}

void JobQueue::tell_readers(FailureNotice failure) {
  {
    const std::lock_guard lock(mutex_);
    failures_.push_back(std::move(failure));
  }
  changed_.notify_one();
}

bool JobQueue::has_name(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return name_is_taken(name);
}

void JobQueue::ended(JobId enhancement) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_enhancements_, [&](const NamedEnhancement& open) { return open.id == enhancement; });
}

bool JobQueue::push(Order order) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || orders_.size() >= kMaxOrders) return false;
    orders_.push_back(std::move(order));
  }
  changed_.notify_one();
  return true;
}

bool JobQueue::remove_order(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(orders_, [&](const Order& order) { return order.ticket == ticket; }) > 0;
}

JobQueue::Work JobQueue::take(std::int64_t max_tokens, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + timeout;
  for (auto now = Clock::now(); !has_work(now) && !is_drained() && now < until; now = Clock::now()) {
    if (now < expected_until_) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    // Jobs that were put back become takeable by time alone.
    const bool held = !waiting_.empty() && now < not_before_;
    changed_.wait_until(lock, held ? std::min(until, not_before_) : until);
  }

  Work work;
  work.failures = std::move(failures_);
  failures_.clear();
  work.enhancements = std::exchange(enhancements_, {});
  work.given_up = std::exchange(given_up_, {});
  work.orders = std::exchange(orders_, {});
  const auto now = Clock::now();
  if (work.orders.empty() && now >= not_before_) {
    std::int64_t tokens = 0;
    for (auto job = waiting_.begin(); job != waiting_.end();) {
      if (job->deadline <= now) {
        ++job;
        continue;
      }
      tokens += job->job.num_tokens();
      const bool wants_to_be_alone =
          job->job.is_alone || (!work.jobs.empty() && work.jobs.back().job.is_alone);
      if (!work.jobs.empty() && (wants_to_be_alone || tokens > max_tokens)) break;
      if (!job->job.name.empty()) running_names_.push_back(job->job.name);
      work.jobs.push_back(std::move(*job));
      job = waiting_.erase(job);
    }
  }
  num_running_ = work.jobs.size();
  work.closed = is_drained() && work.empty();
  return work;
}

void JobQueue::put_back(std::vector<QueuedJob> jobs, Clock::time_point not_before) {
  const std::lock_guard lock(mutex_);
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    if (!job->job.name.empty()) std::erase(running_names_, job->job.name);
    waiting_.push_front(std::move(*job));
  }
  not_before_ = not_before;
}

void JobQueue::finished() {
  const std::lock_guard lock(mutex_);
  running_names_.clear();
  num_running_ = 0;
}

std::optional<QueuedJob> JobQueue::remove(JobId id, const std::string& code, const std::string& message) {
  std::optional<QueuedJob> removed;
  {
    const std::lock_guard lock(mutex_);
    const auto job =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const QueuedJob& j) { return j.job.id == id; });
    if (job == waiting_.end()) return removed;
    removed = std::move(*job);
    waiting_.erase(job);
    failures_.push_back({id, removed->job.name, code, message});
  }
  changed_.notify_one();
  return removed;
}

std::vector<QueuedJob> JobQueue::remove_all(const std::string& code, const std::string& message) {
  std::vector<QueuedJob> removed;
  {
    const std::lock_guard lock(mutex_);
    for (QueuedJob& job : waiting_) {
      failures_.push_back({job.job.id, job.job.name, code, message});
      removed.push_back(std::move(job));
    }
    waiting_.clear();
  }
  if (!removed.empty()) changed_.notify_one();
  return removed;
}

std::vector<QueuedJob> JobQueue::take_expired(Clock::time_point now) {
  std::vector<QueuedJob> expired;
  {
    const std::lock_guard lock(mutex_);
    for (auto job = waiting_.begin(); job != waiting_.end();) {
      if (job->deadline > now) {
        ++job;
        continue;
      }
      failures_.push_back({job->job.id, job->job.name, job->expiry_code, job->expiry_message});
      expired.push_back(std::move(*job));
      job = waiting_.erase(job);
    }
  }
  if (!expired.empty()) changed_.notify_one();
  return expired;
}

std::optional<Clock::time_point> JobQueue::next_deadline() const {
  const std::lock_guard lock(mutex_);
  const auto first =
      std::min_element(waiting_.begin(), waiting_.end(),
                       [](const QueuedJob& a, const QueuedJob& b) { return a.deadline < b.deadline; });
  if (first == waiting_.end()) return std::nullopt;
  return first->deadline;
}

void JobQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

std::size_t JobQueue::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::size_t JobQueue::num_running() const {
  const std::lock_guard lock(mutex_);
  return num_running_;
}

std::size_t JobQueue::num_enhancements() const {
  const std::lock_guard lock(mutex_);
  return open_enhancements_.size();
}

bool JobQueue::name_is_taken(const std::string& name) const {
  return std::find(running_names_.begin(), running_names_.end(), name) != running_names_.end() ||
         std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const QueuedJob& job) { return job.job.name == name; }) ||
         std::any_of(open_enhancements_.begin(), open_enhancements_.end(),
                     [&](const NamedEnhancement& open) { return open.name == name; });
}

bool JobQueue::has_work(Clock::time_point now) const {
  if (!failures_.empty() || !orders_.empty() || !enhancements_.empty() || !given_up_.empty()) return true;
  return now >= not_before_ && std::any_of(waiting_.begin(), waiting_.end(),
                                           [&](const QueuedJob& job) { return job.deadline > now; });
}

}  // namespace gemmad
