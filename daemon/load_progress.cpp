#include "daemon/load_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gemmad {

LoadProgressLine::LoadProgressLine(std::string what)
    : what_(std::move(what)),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      written_(start_) {}

void LoadProgressLine::update(std::uint64_t done_bytes, std::uint64_t total_bytes) {
  const auto now = Clock::now();
  const bool last = done_bytes >= total_bytes;
  if (done_) return;
  const auto every = on_terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2000);
  if (!last && now - written_ < every) return;
  written_ = now;
  const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-6);
  const auto done = static_cast<double>(done_bytes);
  const auto total = static_cast<double>(total_bytes);
  const double rate = done / seconds;
  const double left = rate > 0 ? (total - done) / rate : 0;
  std::fprintf(stderr, "%s%s: %3.0f %%  %.1f of %.1f MB  %.2f GB/s  %.0f s left%s", on_terminal_ ? "\r" : "",
               what_.c_str(), total > 0 ? 100 * done / total : 100.0, done / 1e6, total / 1e6, rate / 1e9,
               left, last || !on_terminal_ ? "\n" : "");
  done_ = last;
  std::fflush(stderr);
}

}  // namespace gemmad
