#include "comm/reader/reader_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/reader/gemmad_reader.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryEvery{10};
constexpr std::size_t kReceiveBytes = 64 * 1024;
// Far above any reply (a tensor takes about 120 bytes): a daemon that sends more is none.
constexpr std::size_t kMaxLineBytes = 256 * 1024 * 1024;

std::string system_text(int error) {
  return std::generic_category().message(error);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw ReaderError("connect", "reader socket \"" + path + "\": a path has 1 to " +
                                     std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// False when `deadline` is over first.
bool wait_for(int socket, short events, ReaderChannel::TimePoint deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto wait_ms = std::clamp<std::int64_t>(left.count(), 0, 24 * 3600 * 1000);
    pollfd entry{socket, events, 0};
    const int num_ready = ::poll(&entry, 1, static_cast<int>(wait_ms));
    if (num_ready > 0) return true;
    if (num_ready == 0) return false;
    if (errno != EINTR) throw ReaderError("disconnected", "poll: " + system_text(errno));
  }
}

/// What the daemon passed along; only the first is kept, there is never a second.
FileDescriptor passed_fd_of(msghdr& message) {
  FileDescriptor kept;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    kept.reset(fd);
  }
  return kept;
}

}  // namespace

ReaderChannel ReaderChannel::connect(const std::string& path, TimePoint deadline) {
  const sockaddr_un address = address_of(path);
  while (true) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) throw ReaderError("connect", "socket for " + path + ": " + system_text(errno));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return ReaderChannel(std::move(socket));
    }
    const int error = errno;
    const bool may_come = error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR;
    if (error == EACCES) {
      throw ReaderError("connect", "reader socket " + path + ": " + system_text(error) +
                                       "; only the user that runs gemmad, and root, may read");
    }
    if (!may_come || Clock::now() >= deadline) {
      throw ReaderError("connect", "nothing serves reader socket " + path + ": " + system_text(error));
    }
    std::this_thread::sleep_for(kRetryEvery);
  }
}

bool ReaderChannel::send_line(std::string_view line, TimePoint deadline) {
  const std::string bytes = std::string(line) + '\n';
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t size =
        ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      if (!wait_for(socket_.get(), POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      throw ReaderError("disconnected", "the daemon has closed the reader socket: " + system_text(errno));
    }
  }
  return true;
}

std::optional<std::string> ReaderChannel::receive_line(TimePoint deadline) {
  while (true) {
    const std::size_t newline = received_.find('\n', searched_);
    if (newline != std::string::npos) {
      std::string line = received_.substr(0, newline);
      received_.erase(0, newline + 1);
      searched_ = 0;
      return line;
    }
    searched_ = received_.size();
    if (received_.size() > kMaxLineBytes) {
      throw ReaderError("protocol", "a line of more than " + std::to_string(kMaxLineBytes) + " bytes");
    }
    if (!receive_some() && !wait_for(socket_.get(), POLLIN, deadline)) return std::nullopt;
  }
}

/// False when there is nothing now.
bool ReaderChannel::receive_some() {
  const std::size_t old_bytes = received_.size();
  received_.resize(old_bytes + kReceiveBytes);
  iovec part{received_.data() + old_bytes, kReceiveBytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const int error = errno;
  received_.resize(old_bytes + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (size > 0) {
    if (FileDescriptor fd = passed_fd_of(message)) passed_fd_ = std::move(fd);
    return true;
  }
  if (size == 0) throw ReaderError("disconnected", "the daemon has closed the reader socket");
  if (error == EAGAIN || error == EINTR) return false;
  throw ReaderError("disconnected", "the daemon has closed the reader socket: " + system_text(error));
}

void ReaderChannel::hang_up() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace gemmad
