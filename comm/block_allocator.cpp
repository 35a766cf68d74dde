#include "comm/block_allocator.h"

#include <iterator>
#include <stdexcept>
#include <string>

namespace gemmad {

BlockAllocator::BlockAllocator(std::uint64_t begin_bytes, std::uint64_t end_bytes) {
  if (end_bytes < begin_bytes) throw std::invalid_argument("a range of blocks ends before it begins");
  // In units of the alignment nothing can wrap, also near 2^64.
  const std::uint64_t first_unit =
      begin_bytes / kAlignmentBytes + (begin_bytes % kAlignmentBytes > 0 ? 1 : 0);
  const std::uint64_t last_unit = end_bytes / kAlignmentBytes;
  if (first_unit >= last_unit) return;
  capacity_bytes_ = (last_unit - first_unit) * kAlignmentBytes;
  free_.emplace(first_unit * kAlignmentBytes, capacity_bytes_);
}

std::optional<std::uint64_t> BlockAllocator::allocate(std::uint64_t size_bytes) {
  if (size_bytes == 0) throw std::invalid_argument("a block of 0 bytes");
  if (size_bytes > capacity_bytes_) return std::nullopt;
  // Cannot wrap: the capacity is itself a multiple of the alignment.
  const std::uint64_t block_bytes = (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, range_bytes] = *range;
    if (range_bytes < block_bytes) continue;
    free_.erase(range);
    if (range_bytes > block_bytes) free_.emplace(offset + block_bytes, range_bytes - block_bytes);
    used_.emplace(offset, block_bytes);
    used_bytes_ += block_bytes;
    return offset;
  }
  return std::nullopt;
}

void BlockAllocator::free(std::uint64_t offset) {
  const auto block = used_.find(offset);
  if (block == used_.end()) throw std::logic_error("no block begins at offset " + std::to_string(offset));
  std::uint64_t block_bytes = block->second;
  used_.erase(block);
  used_bytes_ -= block_bytes;

  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      block_bytes += previous->second;
      free_.erase(previous);
    }
  }
  if (next != free_.end() && offset + block_bytes == next->first) {
    block_bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, block_bytes);
}

}  // namespace gemmad
