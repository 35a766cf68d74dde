#include "daemon/rank_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

namespace {

/// Second number of /proc/self/statm: resident pages. 0 where it cannot be read: a figure for people, not for
/// decisions. The file stays open, as every batch asks.
std::uint64_t resident_bytes() {
  static const FileDescriptor statm(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  std::array<char, 128> text;
  const ssize_t size = ::pread(statm.get(), text.data(), text.size(), 0);
  if (size <= 0) return 0;
  const char* const end = text.data() + size;
  const char* const space = std::find<const char*>(text.data(), end, ' ');
  std::uint64_t resident_pages = 0;
  if (space != end) std::from_chars(space + 1, end, resident_pages);
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
  status.kept_bytes = stats.kept_bytes;
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
