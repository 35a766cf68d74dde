// Bytes that wait to be sent on one socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gemmad {

/// Keeps order; at most one descriptor travels, with the first byte.
class SendQueue {
 public:
  enum class Progress : std::uint8_t {
    kNone,    // the socket takes nothing now
    kSome,    // at least a byte went, or there was nothing to send
    kBroken,  // the peer is gone
  };

  void push_line(std::string_view line);
  /// `fd` must stay open until it has gone. Only before the first byte was sent.
  void pass_fd(int fd) { fd_to_pass_ = fd; }
  std::size_t size_bytes() const { return bytes_.size() - sent_; }
  /// Sends what `socket` takes without blocking. Raises no SIGPIPE.
  Progress flush(int socket);

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
  int fd_to_pass_ = -1;
};

}  // namespace gemmad
