#include "comm/result_store.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "comm/segment_layout.h"

namespace gemmad {
namespace {

// Finished ids merge into few ranges; this many only where jobs finish far out of order.
constexpr std::size_t kMaxFinishedRanges = 4096;

}  // namespace

ResultStore::ResultStore(Segment& segment, Options options, Clock clock)
    : segment_(segment),
      clock_(clock ? std::move(clock) : Clock(&std::chrono::steady_clock::now)),
      options_(options),
      allocator_(kSegmentHeaderBytes, segment.bytes().size()),
      finished_(kMaxFinishedRanges) {}

ReserveVerdict ResultStore::reserve(JobId job, const std::string& name, std::uint64_t size_bytes,
                                    std::int64_t num_readers) {
  const std::lock_guard lock(mutex_);
  if (results_.contains(job)) {
    throw std::logic_error("job " + std::to_string(job) + " is reserved or published already");
  }
  expire_locked();
  if (size_bytes > allocator_.capacity_bytes()) return ReserveVerdict::kTooLarge;
  if (!name_is_free(name)) return ReserveVerdict::kNameInUse;
  while (results_.size() >= options_.max_results) {
    if (!evict_one()) return ReserveVerdict::kNoSpace;
  }
  std::uint64_t offset = kSegmentHeaderBytes;
  if (size_bytes > 0) {
    auto found = allocator_.allocate(size_bytes);
    while (!found && evict_one())
      found = allocator_.allocate(size_bytes);
    if (!found) return ReserveVerdict::kNoSpace;
    offset = *found;
  }
  Result& result = results_[job];
  result.name = name;
  result.offset = offset;
  result.size_bytes = size_bytes;
  result.readers_to_come = num_readers;
  if (!name.empty()) jobs_of_names_[name] = job;
  return ReserveVerdict::kReserved;
}

void ResultStore::set_ttl(std::chrono::milliseconds ttl) {
  const std::lock_guard lock(mutex_);
  options_.ttl = ttl;
  // What is there must not outlive what comes: expire_locked stops at the first that is young.
  const TimePoint latest = clock_() + ttl;
  for (auto& [job, result] : results_)
    result.expires_at = std::min(result.expires_at, latest);
  for (auto& [job, failure] : failures_)
    failure.expires_at = std::min(failure.expires_at, latest);
}

std::span<std::byte> ResultStore::block(JobId job) const {
  const std::lock_guard lock(mutex_);
  const Result& result = reservation(job);
  return segment_.bytes().subspan(result.offset, result.size_bytes);
}

std::uint64_t ResultStore::block_offset(JobId job) const {
  const std::lock_guard lock(mutex_);
  return reservation(job).offset;
}

void ResultStore::publish(JobId job, std::vector<PromptResult> prompts) {
  {
    const std::lock_guard lock(mutex_);
    reservation(job);
    Result& result = results_.at(job);
    check_tensors(job, result, prompts);
    result.prompts = std::make_shared<const std::vector<PromptResult>>(std::move(prompts));
    result.age = next_age_++;
    result.expires_at = clock_() + options_.ttl;
    published_.emplace(result.age, job);
  }
  notify();
}

void ResultStore::fail(JobId job, const std::string& name, JobFailure failure) {
  {
    const std::lock_guard lock(mutex_);
    const auto result = results_.find(job);
    if (result != results_.end()) {
      if (result->second.prompts) return;
      drop_reservation(result);
    }
    expire_locked();
    remember_failure(job, name, std::move(failure));
  }
  notify();
}

void ResultStore::release_reservation(JobId job) {
  const std::lock_guard lock(mutex_);
  const auto result = results_.find(job);
  if (result != results_.end() && !result->second.prompts) drop_reservation(result);
}

AcquireOutcome ResultStore::acquire(const ResultKey& key, ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  expire_locked();
  if (const auto* job = std::get_if<JobId>(&key)) return acquire_job(*job, connection);
  const auto holder = jobs_of_names_.find(std::get<std::string>(key));
  if (holder == jobs_of_names_.end()) return Pending{};
  return acquire_job(holder->second, connection);
}

AcquireOutcome ResultStore::acquire_job(JobId job, ConnectionId connection) {
  const auto found = results_.find(job);
  if (found != results_.end()) {
    Result& result = found->second;
    if (!result.prompts) return Pending{};
    const LeaseId lease = next_lease_++;
    leases_.emplace(lease, Lease{job, connection});
    ++result.num_leases;
    --result.readers_to_come;
    return Acquired{lease, job, result.prompts};
  }
  const auto failure = failures_.find(job);
  if (failure != failures_.end()) return Failed{failure->second.reason};
  if (finished_.contains(job)) return Gone{};
  return Pending{};
}

bool ResultStore::release(LeaseId lease, ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.connection != connection) return false;
  end_lease(found);
  return true;
}

void ResultStore::release_all(ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto next = std::next(lease);
    if (lease->second.connection == connection) end_lease(lease);
    lease = next;
  }
}

void ResultStore::end_lease(std::unordered_map<LeaseId, Lease>::iterator lease) {
  --results_.at(lease->second.job).num_leases;
  leases_.erase(lease);
}

void ResultStore::expire() {
  const std::lock_guard lock(mutex_);
  expire_locked();
}

ResultStore::Stats ResultStore::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats;
  stats.segment_bytes = segment_.bytes().size();
  stats.used_bytes = allocator_.used_bytes();
  for (const auto& [job, result] : results_) {
    if (result.num_leases > 0) stats.leased_bytes += result.size_bytes;
  }
  stats.num_results = published_.size();
  stats.num_leases = leases_.size();
  return stats;
}

void ResultStore::set_on_change(std::function<void()> on_change) {
  const std::lock_guard lock(on_change_mutex_);
  on_change_ = std::move(on_change);
}

void ResultStore::notify() {
  const std::lock_guard lock(on_change_mutex_);
  if (on_change_) on_change_();
}

const ResultStore::Result& ResultStore::reservation(JobId job) const {
  const auto result = results_.find(job);
  if (result == results_.end() || result->second.prompts) {
    throw std::logic_error("job " + std::to_string(job) + " has no reservation");
  }
  return result->second;
}

void ResultStore::check_tensors(JobId job, const Result& result,
                                const std::vector<PromptResult>& prompts) const {
  for (const PromptResult& prompt : prompts) {
    for (const TensorInfo& tensor : prompt.tensors) {
      const bool inside = tensor.offset >= result.offset && tensor.size_bytes <= result.size_bytes &&
                          tensor.offset - result.offset <= result.size_bytes - tensor.size_bytes;
      if (inside) continue;
      throw std::logic_error("job " + std::to_string(job) + ": tensor " + tensor.name + " at " +
                             std::to_string(tensor.offset) + " of " + std::to_string(tensor.size_bytes) +
                             " bytes leaves its block at " + std::to_string(result.offset) + " of " +
                             std::to_string(result.size_bytes) + " bytes");
    }
  }
}

bool ResultStore::name_is_free(const std::string& name) const {
  const auto holder = jobs_of_names_.find(name);
  if (holder == jobs_of_names_.end()) return true;
  const auto result = results_.find(holder->second);
  // Held by a failure: its readers have been told, or will not come.
  if (result == results_.end()) return true;
  return result->second.readers_to_come <= 0 && result->second.num_leases == 0;
}

void ResultStore::drop_name(const std::string& name, JobId holder) {
  const auto found = jobs_of_names_.find(name);
  if (found != jobs_of_names_.end() && found->second == holder) jobs_of_names_.erase(found);
}

void ResultStore::drop_reservation(Results::iterator result) {
  if (result->second.size_bytes > 0) allocator_.free(result->second.offset);
  drop_name(result->second.name, result->first);
  results_.erase(result);
}

void ResultStore::drop_published(Results::iterator result) {
  published_.erase(result->second.age);
  finished_.insert(result->first);
  drop_reservation(result);
}

void ResultStore::remember_failure(JobId job, const std::string& name, JobFailure failure) {
  while (failures_by_age_.size() >= options_.max_failures && !failures_by_age_.empty())
    drop_oldest_failure();
  if (options_.max_failures == 0 || failures_.contains(job)) return;
  // A job that failed because its name was taken must not take the name from its holder.
  if (!name.empty() && name_is_free(name)) jobs_of_names_[name] = job;
  failures_.emplace(job, Failure{name, std::move(failure), clock_() + options_.ttl});
  failures_by_age_.push_back(job);
}

void ResultStore::drop_oldest_failure() {
  const JobId job = failures_by_age_.front();
  const auto failure = failures_.find(job);
  drop_name(failure->second.name, job);
  failures_.erase(failure);
  failures_by_age_.pop_front();
  finished_.insert(job);
}

void ResultStore::expire_locked() {
  const TimePoint now = clock_();
  while (!failures_by_age_.empty() && failures_.at(failures_by_age_.front()).expires_at <= now) {
    drop_oldest_failure();
  }
  // The oldest expire first (see set_ttl), so the first young one ends the search.
  for (auto entry = published_.begin(); entry != published_.end();) {
    const auto result = results_.find(entry->second);
    ++entry;
    if (result->second.expires_at > now) break;
    if (result->second.num_leases == 0) drop_published(result);
  }
}

bool ResultStore::evict_one() {
  for (const auto& [age, job] : published_) {
    const auto result = results_.find(job);
    if (result->second.readers_to_come > 0 || result->second.num_leases > 0) continue;
    drop_published(result);
    return true;
  }
  return false;
}

}  // namespace gemmad
