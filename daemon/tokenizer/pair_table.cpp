#include "daemon/tokenizer/pair_table.h"

#include <bit>

namespace gemmad {

PairTable::PairTable(std::span<const Merge> merges) {
  const std::size_t capacity = std::bit_ceil(2 * merges.size() + 2);
  slots_.resize(capacity);
  mask_ = capacity - 1;
  shift_ = 64 - std::countr_zero(capacity);
  results_.reserve(merges.size());
  for (const Merge& merge : merges) {
    const auto rank = static_cast<std::uint32_t>(results_.size());
    results_.push_back(merge.result);
    std::size_t at = slot_of(merge.left, merge.right);
    while (slots_[at].rank != kNoRank &&
           !(slots_[at].left == merge.left && slots_[at].right == merge.right)) {
      at = (at + 1) & mask_;
    }
    if (slots_[at].rank == kNoRank) slots_[at] = {merge.left, merge.right, rank};
  }
}

}  // namespace gemmad
