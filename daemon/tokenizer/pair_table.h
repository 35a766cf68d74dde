// Which pairs of symbols merge, and how early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gemmad {

/// One merge: two neighbouring symbols become one. Its rank is its place in the file.
struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

/// A hash from pairs of ids to ranks: open addressing, at most half full, twelve bytes a slot.
class PairTable {
 public:
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

  /// Room for `capacity` merges, fewer than 2^31.
  explicit PairTable(std::size_t capacity = 0);

  /// Adds the merge of the next rank. Returns kNoRank, or, when the pair is there already, its rank: then
  /// nothing has been added. At most `capacity` times.
  std::uint32_t add(const Merge& merge);

  /// The rank of (left, right), or kNoRank when they do not merge.
  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    std::size_t at = slot_of(left, right);
    while (true) {
      const Slot& slot = slots_[at];
      if ((slot.left == left && slot.right == right) || slot.rank == kNoRank) return slot.rank;
      at = (at + 1) & mask_;
    }
  }

  /// What the merge of that rank makes. `rank` is one that rank() gave.
  std::int32_t result(std::uint32_t rank) const { return results_[rank]; }

 private:
  struct Slot {
    std::int32_t left = -1;
    std::int32_t right = -1;
    std::uint32_t rank = kNoRank;
  };

  std::size_t slot_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                              static_cast<std::uint32_t>(right);
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u ^ key >> 29) * 0xBF58476D1CE4E5B9u >> shift_) &
           mask_;
  }

  std::vector<Slot> slots_;
  std::vector<std::int32_t> results_;  // by rank
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace gemmad
