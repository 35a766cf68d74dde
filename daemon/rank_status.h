// What ranks tell rank 0 about themselves. Fixed-size records, exchanged as bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/result_store.h"
#include "comm/shard_plan.h"

namespace gemmad {

/// Told at start and after every change of mode or residency.
struct RankIdentity {
  std::int32_t pid = 0;
  std::int32_t node = 0;
  std::int32_t publisher = 0;             // the rank that publishes for this one's readers
  std::array<char, 64> host{};            // zero-terminated, as below
  std::array<char, 128> reader_socket{};  // the publisher's
  std::array<char, 128> device{};
  Shard shard;                         // what it holds; its rank is -1 where that is nothing
  std::uint64_t weight_bytes = 0;      // of device memory
  std::uint64_t replicated_bytes = 0;  // of these, what other shards of the same layers hold too
  std::uint64_t workspace_bytes = 0;
  std::uint64_t processor_bytes = 0;    // of embeddings
  std::uint64_t sum_bytes = 0;          // shared with ranks that hold other slices
  std::uint64_t delivery_bytes = 0;     // of results of other ranks on their way
  std::uint64_t scratch_bytes = 0;      // of operations
  std::uint64_t generation_bytes = 0;   // of sequences that are continued, and of a model for them alone
  std::uint64_t device_free_bytes = 0;  // whoever uses the rest; 0 where the device has no memory of its own
  std::uint64_t device_total_bytes = 0;
  std::uint64_t disk_bytes = 0;  // read from the model's files since the start
};

/// Told with every batch and heartbeat.
struct RankStatus {
  std::uint64_t segment_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t leased_bytes = 0;
  std::uint64_t kept_bytes = 0;  // for prompts that come again
  std::uint64_t num_results = 0;
  std::uint64_t num_leases = 0;
  std::uint64_t rss_bytes = 0;
  std::uint64_t tokens = 0;  // computed by this rank so far
  bool stop_asked = false;   // of this rank, which could not tell rank 0 in a quicker way
};

/// This rank's, now, but for `tokens` and `stop_asked`. Reads /proc. `store` may be null.
RankStatus rank_status(const ResultStore* store);

/// Copies as much of `text` as fits, zero-terminated.
template <std::size_t N>
std::array<char, N> fixed_text(std::string_view text) {
  std::array<char, N> out{};
  text.substr(0, N - 1).copy(out.data(), N - 1);
  return out;
}

/// The latest of every rank, between the engine that learns it and the control thread that tells it.
/// Thread-safe.
class StatusBoard {
 public:
  struct Snapshot {
    std::vector<RankStatus> ranks;                   // by rank
    std::chrono::steady_clock::time_point heard_at;  // from all ranks together
    bool encoding = false;
  };

  void set_ranks(std::vector<RankStatus> ranks);
  void set_encoding(bool encoding);
  Snapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  Snapshot now_;
};

}  // namespace gemmad
