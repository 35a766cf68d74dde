#include "comm/block_allocator.h"

#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kPage = BlockAllocator::kAlignmentBytes;

/// One flag a page, searched from the front: slow and plain.
class NaiveAllocator {
 public:
  NaiveAllocator(std::uint64_t first_page, std::size_t num_pages)
      : first_page_(first_page), taken_(num_pages) {}

  std::optional<std::uint64_t> allocate(std::uint64_t size_bytes) {
    const std::size_t num_pages = (size_bytes + kPage - 1) / kPage;
    for (std::size_t first = 0; first + num_pages <= taken_.size(); ++first) {
      bool fits = true;
      for (std::size_t i = 0; i < num_pages; ++i)
        fits = fits && !taken_[first + i];
      if (!fits) continue;
      for (std::size_t i = 0; i < num_pages; ++i)
        taken_[first + i] = true;
      return (first_page_ + first) * kPage;
    }
    return std::nullopt;
  }
  void free(std::uint64_t offset, std::uint64_t size_bytes) {
    for (std::size_t i = 0; i < (size_bytes + kPage - 1) / kPage; ++i)
      taken_[offset / kPage - first_page_ + i] = false;
  }
  std::uint64_t used_bytes() const {
    std::uint64_t pages = 0;
    for (const bool taken : taken_)
      pages += taken ? 1 : 0;
    return pages * kPage;
  }

 private:
  std::uint64_t first_page_;
  std::vector<bool> taken_;
};

TEST_CASE("A random sequence of allocations and frees goes as in the naive model") {
  const auto seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t kPages = 64;
  BlockAllocator allocator(kPage, (1 + kPages) * kPage);
  NaiveAllocator naive(1, kPages);
  struct Block {
    std::uint64_t offset;
    std::uint64_t size_bytes;
  };
  std::vector<Block> blocks;
  for (int step = 0; step < 5000; ++step) {
    CAPTURE(step);
    if (blocks.empty() || random() % 5 < 3) {
      const std::uint64_t size_bytes = 1 + random() % (12 * kPage);
      const auto offset = allocator.allocate(size_bytes);
      REQUIRE(offset == naive.allocate(size_bytes));
      if (offset) blocks.push_back({*offset, size_bytes});
    } else {
      const std::size_t chosen = random() % blocks.size();
      allocator.free(blocks[chosen].offset);
      naive.free(blocks[chosen].offset, blocks[chosen].size_bytes);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    REQUIRE(allocator.used_bytes() == naive.used_bytes());
  }
  for (const Block& block : blocks)
    allocator.free(block.offset);
  REQUIRE(allocator.used_bytes() == 0);
  REQUIRE(allocator.allocate(kPages * kPage) == kPage);
}

TEST_CASE("Ends that are not aligned are cut, not overrun") {
  BlockAllocator allocator(1, 3 * kPage - 1);
  CHECK(allocator.capacity_bytes() == kPage);
  CHECK(allocator.allocate(1) == kPage);
  CHECK_FALSE(allocator.allocate(1).has_value());
}

TEST_CASE("A range without a whole page has no room") {
  const auto end = GENERATE(std::uint64_t{1}, kPage - 1, kPage, 2 * kPage - 1);
  CAPTURE(end);
  BlockAllocator allocator(1, end);
  CHECK(allocator.capacity_bytes() == 0);
  CHECK_FALSE(allocator.allocate(1).has_value());
}

TEST_CASE("Sizes near 2^64 are refused, not wrapped") {
  BlockAllocator allocator(kPage, 9 * kPage);
  CHECK_FALSE(allocator.allocate(std::numeric_limits<std::uint64_t>::max()).has_value());
  CHECK_FALSE(allocator.allocate(8 * kPage + 1).has_value());
  CHECK(allocator.allocate(8 * kPage).has_value());
  CHECK(
      BlockAllocator(std::numeric_limits<std::uint64_t>::max() - 1, std::numeric_limits<std::uint64_t>::max())
          .capacity_bytes() == 0);
}

TEST_CASE("What makes no sense to allocate or free is thrown back") {
  BlockAllocator allocator(0, 8 * kPage);
  CHECK_THROWS_AS(allocator.allocate(0), std::invalid_argument);
  CHECK_THROWS_AS(BlockAllocator(2, 1), std::invalid_argument);
  const auto offset = allocator.allocate(2 * kPage);
  REQUIRE(offset == 0u);
  CHECK_THROWS_AS(allocator.free(kPage), std::logic_error);
  allocator.free(0);
  CHECK_THROWS_AS(allocator.free(0), std::logic_error);
}

}  // namespace
}  // namespace gemmad
