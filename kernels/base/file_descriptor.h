// Owning file descriptor, and the error class of failed system calls.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace gemmad {

/// A failed system call. `what()` names the call, its subject and the system's reason.
class SystemError : public std::system_error {
 public:
  SystemError(int error, const std::string& what_failed)
      : std::system_error(error, std::generic_category(), what_failed) {}
};

/// Returns `result`, or throws SystemError from errno when it is negative. `what_failed`: "open /x/y".
template <typename Result>
Result check_system(Result result, const std::string& what_failed) {
  if (result < 0) throw SystemError(errno, what_failed);
  return result;
}

/// Owns one open descriptor and closes it. Movable, not copyable; -1 when empty.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gemmad
