// Which prompts were computed before, and where their tensors are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/job.h"

namespace gemmad {

/// What makes two prompts the same: they have the same tensors, to the byte.
struct PromptKey {
  std::vector<std::int32_t> ids;
  OutputSelection outputs;

  bool operator==(const PromptKey&) const = default;
};

/// A prompt that a job computed itself.
struct ComputedPrompt {
  std::size_t prompt = 0;
  PromptKey key;
};

/// Rank 0's directory of the results that all ranks keep. Jobs are remembered whole and forgotten whole, the
/// one whose last use is longest ago first; together their blocks have at most `max_bytes`. 0 bytes: nothing
/// is ever remembered. Keys are compared in full: no two different prompts are ever taken for each other. Not
/// thread safe.
///
/// Every function that returns job ids has forgotten these jobs: the ranks must drop them.
class ResultDirectory {
 public:
  struct Counters {
    std::uint64_t hits = 0;  // since the start, as misses
    std::uint64_t misses = 0;
    std::uint64_t bytes = 0;  // at present, as the rest
    std::size_t jobs = 0;
    std::size_t prompts = 0;
  };

  explicit ResultDirectory(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;

  /// Whether it can remember anything. Where not, nothing needs to be kept or looked up.
  bool on() const { return max_bytes_ > 0; }

  /// Where the prompt's tensors are. A hit is a use of its job. Without a hit, it counts as a miss.
  std::optional<EarlierPrompt> find(const PromptKey& key);

  /// Remembers a job that all ranks keep, with a block of `size_bytes`. What it borrowed is no affair of this
  /// call. The first of equal keys counts, whether of an earlier job or of this one. Returns what had to be
  /// forgotten: older jobs, or just this job where it does not fit at all or has no key that is new. Throws
  /// std::logic_error for a job remembered already.
  std::vector<JobId> remember(JobId job, std::uint64_t size_bytes, std::vector<ComputedPrompt> prompts);

  /// The job whose last use is longest ago; nothing when it remembers none.
  std::optional<JobId> forget_oldest();
  /// All jobs, by last use.
  std::vector<JobId> clear();
  /// Another bound. Returns what is beyond it.
  std::vector<JobId> set_max_bytes(std::uint64_t max_bytes);

  Counters counters() const;

 private:
  struct RememberedJob {
    JobId job = 0;
    std::uint64_t size_bytes = 0;
    std::vector<const PromptKey*> keys;  // in places_
  };
  using Jobs = std::list<RememberedJob>;
  struct Place {
    Jobs::iterator job;
    std::size_t prompt = 0;
  };
  struct Hash {
    std::size_t operator()(const PromptKey& key) const;
  };

  std::vector<JobId> shrink_to(std::uint64_t bytes);

  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  Jobs jobs_;  // the last used is last
  std::unordered_map<PromptKey, Place, Hash> places_;
};

}  // namespace gemmad
