#include "comm/segment_block.h"

#include <limits>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kPage = BlockAllocator::kAlignmentBytes;

TEST_CASE("A block is free again when its last holder lets go, not before") {
  BlockAllocator allocator(0, 4 * kPage);
  SharedBlock first = SegmentBlock::take(allocator, kPage + 1, 0);
  REQUIRE(first);
  SharedBlock second = first;
  CHECK_FALSE(SegmentBlock::take(allocator, 3 * kPage, 0));
  first.reset();
  CHECK(allocator.used_bytes() == 2 * kPage);
  second.reset();
  CHECK(allocator.used_bytes() == 0);
}

TEST_CASE("A block of no bytes takes no space and is always there") {
  BlockAllocator allocator(0, kPage);
  const SharedBlock full = SegmentBlock::take(allocator, kPage, 0);
  const SharedBlock empty = SegmentBlock::take(allocator, 0, 64);
  REQUIRE(empty);
  CHECK(empty->contains(64, 0));
  CHECK_FALSE(empty->contains(64, 1));
  CHECK_FALSE(full->contains(std::numeric_limits<std::uint64_t>::max(), 2));
}

}  // namespace
}  // namespace gemmad
