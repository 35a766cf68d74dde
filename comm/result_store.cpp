#include "comm/result_store.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "comm/segment_layout.h"

namespace gemmad {
namespace {

// Finished ids merge into few ranges; this many only where jobs finish far out of order.
constexpr std::size_t kMaxFinishedRanges = 4096;

std::logic_error misuse(JobId job, const std::string& reason) {
  return std::logic_error("job " + std::to_string(job) + " " + reason);
}

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
  if (results_.contains(job) || kept_.contains(job)) throw misuse(job, "is reserved or published already");
  expire_locked();
  if (size_bytes > allocator_.capacity_bytes()) return ReserveVerdict::kTooLarge;
  if (!name_is_free(name)) return ReserveVerdict::kNameInUse;
  while (results_.size() >= options_.max_results) {
    if (!evict_one(false)) return ReserveVerdict::kNoSpace;
  }
  SharedBlock block = SegmentBlock::take(allocator_, size_bytes, kSegmentHeaderBytes);
  while (!block && evict_one(true))
    block = SegmentBlock::take(allocator_, size_bytes, kSegmentHeaderBytes);
  if (!block) return ReserveVerdict::kNoSpace;
  Result& result = results_[job];
  result.name = name;
  result.block = std::move(block);
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
  const SegmentBlock& block = *reservation(job).block;
  return segment_.bytes().subspan(block.offset(), block.size_bytes());
}

std::uint64_t ResultStore::block_offset(JobId job) const {
  const std::lock_guard lock(mutex_);
  return reservation(job).block->offset();
}

void ResultStore::publish(JobId job, std::vector<PromptResult> prompts, std::span<const JobId> borrowed) {
  {
    const std::lock_guard lock(mutex_);
    reservation(job);
    Result& result = results_.at(job);
    Borrowed blocks;
    for (const JobId lender : borrowed)
      blocks.emplace(lender, lent_block(lender));
    check_tensors(job, result.block, blocks, prompts);
    result.borrowed = std::move(blocks);
    result.prompts = std::make_shared<const std::vector<PromptResult>>(std::move(prompts));
    result.age = next_age_++;
    result.expires_at = clock_() + options_.ttl;
    published_.emplace(result.age, job);
    const auto kept = kept_.find(job);
    if (kept != kept_.end()) kept->second.prompts = result.prompts;
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

void ResultStore::keep(JobId job) {
  const std::lock_guard lock(mutex_);
  if (kept_.contains(job)) throw misuse(job, "is kept already");
  const auto result = results_.find(job);
  if (result == results_.end()) throw misuse(job, "has no block to keep");
  kept_.emplace(job, Kept{result->second.block, result->second.prompts});
}

void ResultStore::drop(JobId job) {
  const std::lock_guard lock(mutex_);
  if (kept_.erase(job) == 0) throw misuse(job, "is not kept");
}

std::shared_ptr<const std::vector<PromptResult>> ResultStore::prompts_of(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto kept = kept_.find(job);
  if (kept == kept_.end() || !kept->second.prompts) throw misuse(job, "is not kept, or not published");
  return kept->second.prompts;
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
  std::unordered_set<SharedBlock> leased;
  for (const auto& [job, result] : results_) {
    if (result.num_leases == 0) continue;
    leased.insert(result.block);
    for (const auto& [lender, block] : result.borrowed)
      leased.insert(block);
  }
  for (const SharedBlock& block : leased)
    stats.leased_bytes += block->size_bytes();
  for (const auto& [job, kept] : kept_)
    stats.kept_bytes += kept.block->size_bytes();
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
  if (result == results_.end() || result->second.prompts) throw misuse(job, "has no reservation");
  return result->second;
}

SharedBlock ResultStore::lent_block(JobId job) const {
  const auto kept = kept_.find(job);
  if (kept != kept_.end() && kept->second.prompts) return kept->second.block;
  const auto result = results_.find(job);
  if (result != results_.end() && result->second.prompts) return result->second.block;
  throw misuse(job, "has published nothing that could be borrowed, or it is gone");
}

void ResultStore::check_tensors(JobId job, const SharedBlock& block, const Borrowed& borrowed,
                                const std::vector<PromptResult>& prompts) const {
  for (const PromptResult& prompt : prompts) {
    for (const TensorInfo& tensor : prompt.tensors) {
      const auto holds = [&](const SharedBlock& held) {
        return held->contains(tensor.offset, tensor.size_bytes);
      };
      if (holds(block)) continue;
      if (std::any_of(borrowed.begin(), borrowed.end(), [&](const auto& lent) { return holds(lent.second); }))
        continue;
      throw misuse(job, "has tensor " + tensor.name + " at " + std::to_string(tensor.offset) + " of " +
                            std::to_string(tensor.size_bytes) + " bytes, outside its block at " +
                            std::to_string(block->offset()) + " of " + std::to_string(block->size_bytes()) +
                            " bytes and the " + std::to_string(borrowed.size()) + " that it borrows");
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

void ResultStore::drop_result(Results::iterator result) {
  drop_name(result->second.name, result->first);
  results_.erase(result);
}

void ResultStore::drop_reservation(Results::iterator result) {
  kept_.erase(result->first);
  drop_result(result);
}

void ResultStore::drop_published(Results::iterator result) {
  published_.erase(result->second.age);
  finished_.insert(result->first);
  drop_result(result);
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

bool ResultStore::gives_space(JobId job, const Result& result) const {
  const auto frees = [&](JobId owner, const SharedBlock& block) {
    return block->size_bytes() > 0 && !kept_.contains(owner);
  };
  return frees(job, result.block) ||
         std::any_of(result.borrowed.begin(), result.borrowed.end(),
                     [&](const auto& lent) { return frees(lent.first, lent.second); });
}

bool ResultStore::evict_one(bool for_space) {
  for (const auto& [age, job] : published_) {
    const auto result = results_.find(job);
    if (result->second.readers_to_come > 0 || result->second.num_leases > 0) continue;
    if (for_space && !gives_space(job, result->second)) continue;
    drop_published(result);
    return true;
  }
  return false;
}

}  // namespace gemmad
