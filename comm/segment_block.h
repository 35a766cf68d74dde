// A range of a segment that is given back when its last holder lets go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "comm/block_allocator.h"

namespace gemmad {

/// Holders share it as a SharedBlock. Letting go is a call of the allocator: not thread safe, so under the
/// lock that guards the allocator. The allocator must outlive the block.
class SegmentBlock {
 public:
  /// Begins at a multiple of BlockAllocator::kAlignmentBytes. Null where no free range holds `size_bytes`. A
  /// block of 0 bytes takes no space, and is always there: at `begin_bytes`.
  static std::shared_ptr<const SegmentBlock> take(BlockAllocator& allocator, std::uint64_t size_bytes,
                                                  std::uint64_t begin_bytes) {
    auto block = std::make_shared<SegmentBlock>(allocator);
    block->size_bytes_ = size_bytes;
    block->offset_ = begin_bytes;
    if (size_bytes == 0) return block;
    block->taken_ = allocator.allocate(size_bytes);
    if (!block->taken_) return nullptr;
    block->offset_ = *block->taken_;
    return block;
  }

  /// Holds nothing; take() makes those that do.
  explicit SegmentBlock(BlockAllocator& allocator) : allocator_(allocator) {}
  ~SegmentBlock() {
    if (taken_) allocator_.free(*taken_);
  }
  SegmentBlock(const SegmentBlock&) = delete;
  SegmentBlock& operator=(const SegmentBlock&) = delete;

  std::uint64_t offset() const { return offset_; }          // from the segment's first byte
  std::uint64_t size_bytes() const { return size_bytes_; }  // as asked for
  /// Whether all of [offset, offset + size_bytes) lies in the block; for any values.
  bool contains(std::uint64_t offset, std::uint64_t size_bytes) const {
    return offset >= offset_ && size_bytes <= size_bytes_ && offset - offset_ <= size_bytes_ - size_bytes;
  }

 private:
  BlockAllocator& allocator_;
  std::optional<std::uint64_t> taken_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_bytes_ = 0;
};

using SharedBlock = std::shared_ptr<const SegmentBlock>;

}  // namespace gemmad
