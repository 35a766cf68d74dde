#include "daemon/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

namespace gemmad {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_byte_[byte_at(tokens_[i].content, 0)];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                                std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (by_first_byte_[byte_at(text, begin)].end == 0) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::match_at(std::string_view text,
                                                                    std::size_t begin) const {
  const Range range = by_first_byte_[byte_at(text, begin)];
  auto low = tokens_.begin() + range.begin;
  auto high = tokens_.begin() + range.end;
  std::optional<Match> longest;
  // [low, high) are the tokens that agree with the text in their first `depth` bytes; the shortest sorts
  // first.
  for (std::size_t depth = 1; low != high; ++depth) {
    if (low->content.size() == depth) {
      longest = Match{begin, begin + depth, low->id};
      ++low;
    }
    if (begin + depth >= text.size()) break;
    const unsigned char next = byte_at(text, begin + depth);
    low = std::partition_point(low, high,
                               [&](const AddedToken& t) { return byte_at(t.content, depth) < next; });
    high = std::partition_point(low, high,
                                [&](const AddedToken& t) { return byte_at(t.content, depth) == next; });
  }
  return longest;
}

}  // namespace gemmad
