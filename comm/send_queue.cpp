#include "comm/send_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace gemmad {
namespace {

// Sent bytes are cut off the front in steps of this size at least, so that a long queue is not moved at every
// send.
constexpr std::size_t kCutBytes = 256 * 1024;

ssize_t send_some(int socket, char* data, std::size_t size_bytes, int fd_to_pass) {
  iovec part{data, size_bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd_to_pass >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd_to_pass, sizeof fd_to_pass);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

void SendQueue::push_line(std::string_view line) {
  if (sent_ >= kCutBytes && sent_ >= bytes_.size() / 2) {
    bytes_.erase(0, sent_);
    sent_ = 0;
  }
  bytes_ += line;
  bytes_ += '\n';
}

SendQueue::Progress SendQueue::flush(int socket) {
  Progress progress = size_bytes() == 0 ? Progress::kSome : Progress::kNone;
  while (size_bytes() > 0) {
    const ssize_t sent = send_some(socket, bytes_.data() + sent_, size_bytes(), fd_to_pass_);
    if (sent < 0) {
      const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
      return later ? progress : Progress::kBroken;
    }
    progress = Progress::kSome;
    fd_to_pass_ = -1;
    sent_ += static_cast<std::size_t>(sent);
  }
  bytes_.clear();
  if (bytes_.capacity() > kCutBytes) bytes_ = std::string();
  sent_ = 0;
  return progress;
}

}  // namespace gemmad
