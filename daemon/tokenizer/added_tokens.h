// Tokens that are found in the raw text before anything else is done to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gemmad {

struct AddedToken {
  std::string content;  ///< not empty, at most AddedTokenMatcher::kMaxBytes
  std::int32_t id = 0;
  bool special = false;  ///< left out of decoded text; means nothing to encoding
};

/// Finds added tokens: leftmost first, the longest of those that start at one place.
class AddedTokenMatcher {
 public:
  /// Bounds the work at one place of the text.
  static constexpr std::size_t kMaxBytes = 256;

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;  ///< behind the last byte
    std::int32_t id = 0;
  };

  /// `tokens` have distinct contents.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  /// The first match that starts at or behind `from`.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  /// The longest token that text starts with at `begin`.
  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;

  std::vector<AddedToken> tokens_;  // sorted by content, as bytes
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  std::array<Range, 256> by_first_byte_{};  // of tokens_
};

}  // namespace gemmad
