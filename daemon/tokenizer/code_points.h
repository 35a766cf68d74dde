// What is known of single code points and of two neighbours, small enough to stay in the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gemmad {

/// The ids of those pieces that are one code point: a table in pages of 256, only the used ones stored.
class CodePointIds {
 public:
  CodePointIds() : ids_(kPageSize, -1) {}

  /// `code_point` <= U+10FFFF.
  void set(char32_t code_point, std::int32_t id) {
    std::uint16_t& page = pages_[code_point / kPageSize];
    if (page == 0) {
      page = static_cast<std::uint16_t>(ids_.size() / kPageSize);
      ids_.resize(ids_.size() + kPageSize, -1);
    }
    ids_[page * kPageSize + code_point % kPageSize] = id;
  }

  /// The id, or -1.
  std::int32_t find(char32_t code_point) const {
    return ids_[pages_[code_point / kPageSize] * kPageSize + code_point % kPageSize];
  }

 private:
  static constexpr std::size_t kPageSize = 256;
  std::array<std::uint16_t, 0x110000 / kPageSize> pages_{};  // page 0 of ids_ is the empty one
  std::vector<std::int32_t> ids_;
};

/// Which neighbours some merge can join. Errs to one side only: may say yes where the answer is no.
class JunctionFilter {
 public:
  JunctionFilter() : bits_(kNumBits / 64) {}

  void add(char32_t left, char32_t right) { bits_[bit_of(left, right) / 64] |= one_bit(left, right); }
  bool may_join(char32_t left, char32_t right) const {
    return (bits_[bit_of(left, right) / 64] & one_bit(left, right)) != 0;
  }

 private:
  // 128 KiB. Gemma has some 34,000 junctions, so one in thirty answers is a needless yes.
  static constexpr std::size_t kNumBits = std::size_t{1} << 20;

  static std::size_t bit_of(char32_t left, char32_t right) {
    const std::uint64_t key = static_cast<std::uint64_t>(left) << 21 | right;
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> 44);
  }
  static std::uint64_t one_bit(char32_t left, char32_t right) {
    return std::uint64_t{1} << bit_of(left, right) % 64;
  }

  std::vector<std::uint64_t> bits_;
};

}  // namespace gemmad
