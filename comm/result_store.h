// Results of jobs in the rank's segment: reserved and published by the engine, leased to readers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "comm/block_allocator.h"
#include "comm/job_id.h"
#include "comm/job_id_set.h"
#include "comm/segment.h"
#include "comm/segment_block.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// One tensor of a result. `offset` counts from the segment's first byte.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

/// What became of one prompt. When not ok, only the error fields count.
struct PromptResult {
  bool ok = false;
  std::string error_code;
  std::string error_message;
  std::int64_t num_tokens = 0;
  std::int64_t padded_length = 0;
  bool truncated = false;
  std::vector<TensorInfo> tensors;
};

/// Why a job has no result at all.
struct JobFailure {
  std::string code;
  std::string message;
};

enum class ReserveVerdict : std::uint8_t {
  kReserved,
  kNoSpace,    // not now: readers hold the space, or nobody has come for it yet
  kTooLarge,   // never: larger than the whole segment
  kNameInUse,  // an earlier result of that name is still owed to its readers
};

using LeaseId = std::uint64_t;
/// A reader's connection, as the endpoint numbers them.
using ConnectionId = std::uint64_t;
/// Of the names that requests give to results.
inline constexpr std::size_t kMaxResultNameBytes = 128;
/// What readers ask by: the job's id, or the name that its request carried.
using ResultKey = std::variant<JobId, std::string>;

struct Pending {};  // not there yet: wait
struct Failed {
  JobFailure failure;
};
struct Gone {};  // was there, or failed, and is no longer remembered
struct Acquired {
  LeaseId lease = 0;
  JobId job = 0;
  std::shared_ptr<const std::vector<PromptResult>> prompts;  // in request order
};
using AcquireOutcome = std::variant<Pending, Failed, Gone, Acquired>;

/// Thread safe: the engine thread reserves and publishes, the reader thread acquires and releases. No call
/// blocks longer than the lock is held. A job is reserved, then published, failed or given back; publishing
/// order is age.
///
/// A result leaves when it has no lease and either its time to live is over or, where a reservation needs the
/// space, it was acquired as often as it has readers. A result that a reader has yet to acquire is kept for
/// its time to live; a leased one always.
///
/// Blocks may outlive their results. A kept job's block stays until it is dropped, and a published result can
/// borrow: its tensors may lie in blocks of other jobs, which then stay for as long as it does. Space is free
/// again when nobody holds it: no result, no borrower, not kept. To readers a kept result is one like any
/// other, gone when its time to live is over, except that no reservation takes it for its space.
class ResultStore {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  struct Options {
    std::chrono::milliseconds ttl{60'000};  // of results from publication, of failures from failing
    std::size_t max_failures = 4096;        // remembered; the oldest goes first
    std::size_t max_results = 65'536;       // reserved and published together; beyond: kNoSpace
  };
  struct Stats {
    std::uint64_t segment_bytes = 0;
    std::uint64_t used_bytes = 0;    // blocks that anything holds, each once
    std::uint64_t leased_bytes = 0;  // of these, blocks of leased results, borrowed ones too
    std::uint64_t kept_bytes = 0;    // of these, blocks of kept jobs
    std::size_t num_results = 0;     // published
    std::size_t num_leases = 0;
  };

  /// `segment` must outlive the store. An empty `clock` is std::chrono::steady_clock::now.
  ResultStore(Segment& segment, Options options, Clock clock = {});

  // Engine side.

  /// Sets space aside for a job that `num_readers` (at least 1) will come for; `name` may be empty,
  /// `size_bytes` may be 0. Evicts as the class says, oldest
  /// first, but only when the space free now does not do. The name belongs to the job from now on. Throws
  /// std::logic_error when the job was reserved before and not given back.
  ReserveVerdict reserve(JobId job, const std::string& name, std::uint64_t size_bytes,
                         std::int64_t num_readers = 1);
  /// The reserved space, `size_bytes` long; the caller writes it without a lock until it publishes.
  /// Throws std::logic_error without a reservation, as do block_offset and publish.
  std::span<std::byte> block(JobId job) const;
  /// Where the reserved space begins in the segment, a multiple of 4096.
  std::uint64_t block_offset(JobId job) const;
  /// Makes the result available and calls on_change. The block must be written by now, and not after.
  /// The result holds the own blocks of the jobs `borrowed`, too; each must be published and not gone, or
  /// kept. Also throws std::logic_error where one is not, and for a tensor that lies neither in the job's
  /// block nor in a borrowed one: the store is then unchanged.
  void publish(JobId job, std::vector<PromptResult> prompts, std::span<const JobId> borrowed = {});
  /// Ends the job with a reason that readers get for the time to live, and calls on_change. Gives a
  /// reservation back; works without one. Ignored for a published job.
  void fail(JobId job, const std::string& name, JobFailure failure);
  /// Gives the space back and remembers nothing: the job will be tried again. Ignored without a reservation.
  void release_reservation(JobId job);

  /// Keeps the job's own block, not those that it borrows, until drop(). Of a job reserved or published; to
  /// keep it before it is published is to be sure of its block. A reservation that fails or is given back is
  /// no longer kept. Throws std::logic_error without such a job, or when it is kept already.
  void keep(JobId job);
  /// Ends keep(). A result that is still there lives on as any other. Throws std::logic_error for a job not
  /// kept.
  void drop(JobId job);
  /// What a kept job published, for results that borrow from it. Throws std::logic_error for a job not kept,
  /// or not published yet.
  std::shared_ptr<const std::vector<PromptResult>> prompts_of(JobId job) const;

  // Reader side.

  /// A lease on the result, or how things stand. Never waits.
  AcquireOutcome acquire(const ResultKey& key, ConnectionId connection);
  /// Ends a lease; false when `connection` holds no such lease.
  bool release(LeaseId lease, ConnectionId connection);
  /// Ends every lease of a connection.
  void release_all(ConnectionId connection);

  /// Drops results and failures whose time is over. Reserving does so by itself.
  void expire();
  Stats stats() const;
  /// Of results and failures from now on; earlier ones expire no later than one of now would.
  void set_ttl(std::chrono::milliseconds ttl);
  /// `on_change` is called after each publish and fail, on the caller's thread, without the store's lock; it
  /// must not call set_on_change. Once this returns, the earlier function is not running and will not be
  /// called again.
  void set_on_change(std::function<void()> on_change);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Borrowed = std::map<JobId, SharedBlock>;  // by the job whose block it is
  struct Result {
    std::string name;
    SharedBlock block;
    Borrowed borrowed;
    std::shared_ptr<const std::vector<PromptResult>> prompts;  // null until published
    std::uint64_t age = 0;                                     // the key in published_
    TimePoint expires_at;
    std::size_t num_leases = 0;
    std::int64_t readers_to_come = 1;
  };
  struct Kept {
    SharedBlock block;
    std::shared_ptr<const std::vector<PromptResult>> prompts;  // null until published
  };
  struct Failure {
    std::string name;
    JobFailure reason;
    TimePoint expires_at;
  };
  struct Lease {
    JobId job = 0;
    ConnectionId connection = 0;
  };

  using Results = std::unordered_map<JobId, Result>;

  // All with the lock held.
  AcquireOutcome acquire_job(JobId job, ConnectionId connection);
  void end_lease(std::unordered_map<LeaseId, Lease>::iterator lease);
  const Result& reservation(JobId job) const;
  SharedBlock lent_block(JobId job) const;
  void check_tensors(JobId job, const SharedBlock& block, const Borrowed& borrowed,
                     const std::vector<PromptResult>& prompts) const;
  bool name_is_free(const std::string& name) const;
  void drop_name(const std::string& name, JobId holder);
  void drop_result(Results::iterator result);
  void drop_reservation(Results::iterator result);
  void drop_published(Results::iterator result);
  void remember_failure(JobId job, const std::string& name, JobFailure failure);
  void drop_oldest_failure();
  void expire_locked();
  bool gives_space(JobId job, const Result& result) const;
  bool evict_one(bool for_space);

  // Without it.
  void notify();

  Segment& segment_;
  const Clock clock_;

  mutable std::mutex mutex_;  // of all below, but for the last two
  Options options_;
  BlockAllocator allocator_;  // outlives those that hold blocks
  Results results_;
  std::unordered_map<JobId, Kept> kept_;
  std::map<std::uint64_t, JobId> published_;  // by age
  std::unordered_map<JobId, Failure> failures_;
  std::deque<JobId> failures_by_age_;
  std::unordered_map<std::string, JobId> jobs_of_names_;
  std::unordered_map<LeaseId, Lease> leases_;
  JobIdSet finished_;
  LeaseId next_lease_ = 1;
  std::uint64_t next_age_ = 1;

  std::mutex on_change_mutex_;
  std::function<void()> on_change_;
};

}  // namespace gemmad
