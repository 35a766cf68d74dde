// Memory without a name that processes of one node and one user share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Owns a descriptor of the memory and one writable mapping of all of it. When the last process has let go,
/// the memory is gone, however the processes ended. Movable; the mapping keeps its address.
class SharedMemory {
 public:
  /// What another process needs to attach. Fixed size, so that ranks can exchange it as bytes.
  struct Address {
    std::int64_t pid = 0;
    std::int32_t fd = -1;
    std::uint64_t size_bytes = 0;
    std::uint64_t device = 0;  // which memory it is, wherever pid and fd may lead
    std::uint64_t inode = 0;
  };

  SharedMemory() = default;

  /// Makes `size_bytes` (whole pages) of zeros, not allocated yet: see allocate(). `name` is what /proc shows
  /// and errors begin with. Throws std::runtime_error naming both numbers when the host has less memory than
  /// that, SystemError when a system call fails.
  static SharedMemory create(const std::string& name, std::uint64_t size_bytes);

  /// Maps what another process created and still holds. Throws SystemError, and std::runtime_error when what
  /// is found is not that.
  static SharedMemory attach(const std::string& name, const Address& address);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  Address address() const;

  /// Has the pages [begin, end) really there, so that lack of memory shows here and not at a write. Blocks
  /// for as long as the kernel takes to clear them. Throws as create.
  void allocate(std::uint64_t begin, std::uint64_t end);

  /// From now on the kernel refuses every new writable mapping, every write() and every resize, through any
  /// descriptor of it; writable mappings that exist stay so. Throws SystemError.
  void seal();

  /// Makes this process's mapping read-only. Throws SystemError.
  void protect();

  /// Takes `part` of bytes() out of this process's account until it is touched again; the contents stay. Only
  /// advice.
  void let_pages_go(std::span<const std::byte> part) const noexcept;

 private:
  SharedMemory(std::string name, FileDescriptor fd, std::uint64_t size_bytes);

  std::string name_;
  FileDescriptor fd_;
  std::span<std::byte> bytes_;
};

}  // namespace gemmad
