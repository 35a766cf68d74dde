#include "daemon/tokenizer/pair_table.h"

#include <bit>

namespace gemmad {

PairTable::PairTable(std::size_t capacity) : slots_(std::bit_ceil(2 * capacity + 2)) {
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
  results_.reserve(capacity);
}

std::uint32_t PairTable::add(const Merge& merge) {
  std::size_t at = slot_of(merge.left, merge.right);
  while (slots_[at].rank != kNoRank) {
    if (slots_[at].left == merge.left && slots_[at].right == merge.right) return slots_[at].rank;
    at = (at + 1) & mask_;
  }
  slots_[at] = {merge.left, merge.right, static_cast<std::uint32_t>(results_.size())};
  results_.push_back(merge.result);
  return kNoRank;
}

}  // namespace gemmad
