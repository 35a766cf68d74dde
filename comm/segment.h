// The output segment of a rank: shared memory that this process writes and everybody else can only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Owner's side of one memfd segment. Sealed at creation: after that the kernel refuses every new writable
/// mapping, every write() and every resize, through any descriptor of it. It has no name, so nothing outlives
/// its users. Movable; the mapping keeps its address.
class Segment {
 public:
  /// Makes a segment of at least `size_bytes` (rounded up to whole pages) with its memory really there:
  /// allocated and mapped, all zero but for the header. Blocks for as long as the kernel takes to clear it.
  /// Throws std::invalid_argument below kMinSegmentBytes, std::runtime_error naming both numbers when the
  /// host has too little memory, SystemError when a system call fails.
  static Segment create(std::uint64_t size_bytes, int rank);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  /// All of it, header included. Results go from kSegmentHeaderBytes on.
  std::span<std::byte> bytes() const { return bytes_; }
  /// The descriptor that readers get. Owned here.
  int fd() const { return fd_.get(); }
  int rank() const { return rank_; }

 private:
  Segment(FileDescriptor fd, std::span<std::byte> bytes, int rank);

  FileDescriptor fd_;
  std::span<std::byte> bytes_;
  int rank_ = 0;
};

}  // namespace gemmad
