// The line that shows how far loading is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gemmad {

/// Writes to stderr: one line that is rewritten on a terminal; elsewhere a line every two seconds and at the
/// end.
class LoadProgressLine {
 public:
  explicit LoadProgressLine(std::string what);

  /// Both in bytes. Cheap: writes ten times a second at most.
  void update(std::uint64_t done_bytes, std::uint64_t total_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool on_terminal_;
  Clock::time_point start_;
  Clock::time_point written_;
  bool done_ = false;  // the last line is written
};

}  // namespace gemmad
