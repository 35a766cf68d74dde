#include "daemon/rank_status.h"

#include <unistd.h>

#include <fstream>

namespace gemmad {

namespace {

/// Second number of /proc/self/statm: resident pages. 0 where it cannot be read: a figure for people, not for
/// decisions.
std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

RankStatus rank_status(const ResultStore* store) {
  RankStatus status;
  status.rss_bytes = resident_bytes();
  if (store == nullptr) return status;
  const ResultStore::Stats stats = store->stats();
  status.segment_bytes = stats.segment_bytes;
  status.used_bytes = stats.used_bytes;
  status.leased_bytes = stats.leased_bytes;
  status.num_results = stats.num_results;
  status.num_leases = stats.num_leases;
  return status;
}

void StatusBoard::set_ranks(std::vector<RankStatus> ranks) {
  const std::lock_guard lock(mutex_);
  now_.ranks = std::move(ranks);
  now_.heard_at = std::chrono::steady_clock::now();
}

void StatusBoard::set_encoding(bool encoding) {
  const std::lock_guard lock(mutex_);
  now_.encoding = encoding;
}

StatusBoard::Snapshot StatusBoard::snapshot() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

}  // namespace gemmad
