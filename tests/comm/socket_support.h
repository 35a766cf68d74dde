// A scratch folder, a raw client, and waiting with a deadline, for tests of sockets.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

constexpr std::chrono::seconds kPatience{20};

/// Asks until `condition` holds or the patience ends.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A new directory of mode 0700, short enough for the path of a socket; removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = "/tmp/gemmad-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw SystemError(errno, "mkdtemp");
    path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline FileDescriptor new_client_socket() {
  return FileDescriptor(check_system(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
}

/// False when nobody listens.
inline bool connect_to(const FileDescriptor& socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline bool somebody_listens(const std::string& path) {
  return connect_to(new_client_socket(), path);
}

inline mode_t mode_of(const std::string& path) {
  struct stat status {};
  check_system(::lstat(path.c_str(), &status), "lstat " + path);
  return status.st_mode & 07777;
}

/// Speaks bytes, not the protocol.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : socket_(new_client_socket()) {
    if (!connect_to(socket_, path)) throw SystemError(errno, "connect " + path);
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) throw SystemError(errno, "send");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// Sends what goes without waiting; false when the connection is over.
  bool try_send(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent >= 0 || errno == EAGAIN;
  }
  void send_line(std::string_view line) { send(std::string(line) + "\n"); }

  /// The next line; nothing when none comes in time or the connection ends.
  std::optional<std::string> line(std::chrono::milliseconds patience = kPatience) {
    while (true) {
      const std::size_t newline = received_.find('\n');
      if (newline != std::string::npos) {
        std::string line = received_.substr(0, newline);
        received_.erase(0, newline + 1);
        return line;
      }
      if (!receive(patience)) return std::nullopt;
    }
  }
  /// Whether the other side hangs up in time; what it still says is thrown away.
  bool ends(std::chrono::milliseconds patience = kPatience) {
    while (receive(patience)) {
    }
    return ended_;
  }
  void shut_down_sending() { ::shutdown(socket_.get(), SHUT_WR); }
  void hang_up() { socket_.reset(); }

 private:
  bool receive(std::chrono::milliseconds patience) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (ended_ || ::poll(&entry, 1, static_cast<int>(patience.count())) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    ended_ = size <= 0;
    if (size > 0) received_.append(buffer, static_cast<std::size_t>(size));
    return size > 0;
  }

  FileDescriptor socket_;
  std::string received_;
  bool ended_ = false;
};

/// The text of the exception that `action` throws; empty when it throws none.
template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace gemmad
