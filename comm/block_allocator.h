// Where blocks lie in a segment. Pure arithmetic on offsets: touches no memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gemmad {

/// First fit over a list of free ranges, neighbours joined. Blocks begin at multiples of kAlignmentBytes.
/// Not thread safe.
class BlockAllocator {
 public:
  static constexpr std::uint64_t kAlignmentBytes = 4096;

  /// Hands out [begin_bytes, end_bytes), begin rounded up and end rounded down to the alignment.
  /// Throws std::invalid_argument when end lies before begin.
  BlockAllocator(std::uint64_t begin_bytes, std::uint64_t end_bytes);

  /// Offset of a new block of at least `size_bytes`, rounded up to the alignment; nothing when no free range
  /// holds it. Throws std::invalid_argument for 0 bytes.
  std::optional<std::uint64_t> allocate(std::uint64_t size_bytes);
  /// Takes back the block at `offset`. Throws std::logic_error when none begins there.
  void free(std::uint64_t offset);

  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes; no two touch
  std::map<std::uint64_t, std::uint64_t> used_;  // offset -> bytes
};

}  // namespace gemmad
