// An output segment: shared memory that gemmad writes and everybody else can only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/shared_memory.h"

namespace gemmad {

/// One process's hold on a segment. It has no name, so nothing outlives its users. Movable; the mapping keeps
/// its address.
class Segment {
 public:
  /// Makes a segment of at least `size_bytes` (rounded up to whole pages) with its memory really there:
  /// allocated and mapped, all zero but for the header. Still to be sealed. Blocks for as
  /// long as the kernel takes to clear it. Throws std::invalid_argument below kMinSegmentBytes,
  /// std::runtime_error naming both numbers when the host has too little memory, SystemError when a system
  /// call fails.
  static Segment create(std::uint64_t size_bytes, int rank);

  /// Maps the segment of another rank of this node, to write results there too. Before its owner seals it.
  /// Throws SystemError.
  static Segment attach(const SharedMemory::Address& address, int rank);

  /// Ends the making: from now on the kernel refuses every new writable mapping, every write() and every
  /// resize, through any descriptor of it. Readers may have it then. Throws SystemError.
  void seal();

  /// All of it, header included. Results go from kSegmentHeaderBytes on.
  std::span<std::byte> bytes() const { return memory_.bytes(); }
  /// The descriptor that readers get. Owned here.
  int fd() const { return memory_.fd(); }
  /// The one that created it.
  int rank() const { return rank_; }
  SharedMemory::Address address() const { return memory_.address(); }

 private:
  Segment(SharedMemory memory, int rank) : memory_(std::move(memory)), rank_(rank) {}

  SharedMemory memory_;
  int rank_ = 0;
};

}  // namespace gemmad
