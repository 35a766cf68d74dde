#include "comm/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace gemmad {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr int kBacklog = 256;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) throw std::runtime_error("the path of a socket is empty");
  if (path.find('\0') != std::string::npos) {
    throw std::runtime_error("the path of a socket holds a zero byte");
  }
  if (path.size() >= sizeof address.sun_path) {
    throw std::runtime_error("socket " + path + ": the path has " + std::to_string(path.size()) +
                             " bytes, the system takes " + std::to_string(sizeof address.sun_path - 1) +
                             "; choose a shorter one");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_directories(const std::string& directory) {
  if (::mkdir(directory.c_str(), kDirectoryMode) == 0 || errno == EEXIST) return;
  if (errno != ENOENT || parent_of(directory) == directory) {
    throw SystemError(errno, "make directory " + directory);
  }
  make_directories(parent_of(directory));
  if (::mkdir(directory.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    throw SystemError(errno, "make directory " + directory);
  }
}

/// Whoever may write in the directory could put another socket in the place of ours.
void check_directory(const std::string& directory, const std::string& path) {
  struct stat status {};
  check_system(::stat(directory.c_str(), &status), "look at directory " + directory);
  const std::string advice = "; put the socket in a directory of its own with mode 0700";
  if (!S_ISDIR(status.st_mode)) {
    throw std::runtime_error("socket " + path + ": " + directory + " is not a directory");
  }
  if (status.st_uid != ::geteuid()) {
    throw std::runtime_error("socket " + path + ": directory " + directory + " belongs to user " +
                             std::to_string(status.st_uid) + ", not to us (" + std::to_string(::geteuid()) +
                             ")" + advice);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw std::runtime_error("socket " + path + ": other users may write in directory " + directory + advice);
  }
}

std::string read_text(int fd) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
}

FileDescriptor take_lock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  FileDescriptor lock(check_system(
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode), "open " + lock_path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw SystemError(errno, "lock " + lock_path);
    const std::string pid = read_text(lock.get());
    throw std::runtime_error("another daemon (pid " + (pid.empty() ? std::string("unknown") : pid) +
                             ") already serves " + path + "; stop it or choose another path");
  }
  const std::string pid = std::to_string(::getpid());
  check_system(::ftruncate(lock.get(), 0), "empty " + lock_path);
  check_system(::pwrite(lock.get(), pid.data(), pid.size(), 0), "write " + lock_path);
  return lock;
}

FileDescriptor new_socket(const std::string& path) {
  return FileDescriptor(
      check_system(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket for " + path));
}

/// Only while the lock is held: no daemon of ours can be behind the socket then.
void remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw SystemError(errno, "look at " + path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    throw std::runtime_error("socket " + path +
                             ": a file that is no socket lies there; remove it or choose another path");
  }
  const FileDescriptor probe = new_socket(path);
  const int result = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (result == 0 || errno == EAGAIN) {
    throw std::runtime_error("socket " + path +
                             ": another program listens there; stop it or choose another path");
  }
  check_system(::unlink(path.c_str()), "remove the old socket " + path);
}

}  // namespace

UnixListener UnixListener::bind(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const std::string directory = parent_of(path);
  make_directories(directory);
  check_directory(directory, path);
  FileDescriptor lock = take_lock(path);
  remove_stale_socket(path, address);

  FileDescriptor socket = new_socket(path);
  // The name takes its mode from the socket at bind: there is no moment at which it has a wider one.
  check_system(::fchmod(socket.get(), kFileMode), "set the mode of socket " + path);
  check_system(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
               "bind socket " + path);
  struct stat status {};
  check_system(::lstat(path.c_str(), &status), "look at " + path);
  UnixListener listener(path, std::move(lock), std::move(socket), status.st_dev, status.st_ino);
  if ((status.st_mode & 0777 & ~kFileMode) != 0) {
    throw std::runtime_error("socket " + path +
                             ": this file system does not keep its mode at 0600; choose another");
  }
  check_system(::listen(listener.fd(), kBacklog), "listen on socket " + path);
  return listener;
}

UnixListener::UnixListener(std::string path, FileDescriptor lock, FileDescriptor socket, dev_t device,
                           ino_t inode)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      socket_(std::move(socket)),
      device_(device),
      inode_(inode) {}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::move(other.lock_)),
      socket_(std::move(other.socket_)),
      device_(other.device_),
      inode_(other.inode_) {}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  std::swap(socket_, other.socket_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

UnixListener::~UnixListener() {
  close();
}

void UnixListener::close() noexcept {
  if (!socket_) return;
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
  socket_.reset();
}

}  // namespace gemmad
