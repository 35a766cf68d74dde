// A listening Unix stream socket that only this user can reach, and that only one daemon can serve.
#pragma once

#include <sys/types.h>

#include <string>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Owns the socket, its name in the file system and the lock beside it. Movable.
///
/// The lock is the file "PATH.lock", held by flock: the kernel drops it however the process dies, so a socket
/// left by a dead daemon is replaced and one of a living daemon is not. The lock file itself stays: to remove
/// it would let two daemons lock two files of the same name.
class UnixListener {
 public:
  /// Binds and listens, non-blocking. The parent directory is made with mode 0700 where missing; the socket
  /// has mode 0600 from its first instant. Throws std::runtime_error with a sentence for the user when the
  /// path is empty or too long, the directory belongs to somebody else or others may write in it, another
  /// process serves the path, or something that is no socket lies there; SystemError when a system call
  /// fails.
  static UnixListener bind(const std::string& path);

  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&& other) noexcept;
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;
  /// Removes the socket's name, unless another socket has taken it, then gives the lock back.
  ~UnixListener();

  /// -1 after close().
  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  /// Stops listening and removes the name; the lock is held on.
  void close() noexcept;

 private:
  UnixListener(std::string path, FileDescriptor lock, FileDescriptor socket, dev_t device, ino_t inode);

  std::string path_;
  FileDescriptor lock_;
  FileDescriptor socket_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gemmad
