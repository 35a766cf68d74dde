// The reader's end of the socket: lines with deadlines, and the descriptor that comes with the first.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Sending and receiving may go on in two threads at once; each alone is for one thread at a time.
/// Throws ReaderError with code "connect", "disconnected" or "protocol".
class ReaderChannel {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Tries until somebody listens at `path` or `deadline` is over; at least once.
  static ReaderChannel connect(const std::string& path, TimePoint deadline);

  /// Sends `line` and a newline. False when `deadline` is over first; the channel is of no use then.
  bool send_line(std::string_view line, TimePoint deadline);
  /// The next line without its newline; nothing when `deadline` is over first. A deadline in the past does
  /// not wait.
  std::optional<std::string> receive_line(TimePoint deadline);
  /// The descriptor that came along with a line received so far; empty when none did or it was taken.
  FileDescriptor take_passed_fd() { return std::move(passed_fd_); }
  /// Hangs up: the daemon ends what belongs to this connection. From any thread.
  void hang_up() noexcept;

 private:
  explicit ReaderChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  bool receive_some();

  FileDescriptor socket_;  // non-blocking
  FileDescriptor passed_fd_;
  std::string received_;
  std::size_t searched_ = 0;  // no newline in received_ before this
};

}  // namespace gemmad
