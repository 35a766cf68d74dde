// The text of a tokenizer.json, taken apart but not yet judged. Internal to this folder: brings in
// nlohmann/json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/added_tokens.h"
#include "daemon/tokenizer/vocabulary.h"

namespace gemmad {

/// The two sides of each merge, by rank, as text.
class MergeTexts {
 public:
  /// Finished merges.
  std::size_t size() const { return size_; }
  std::string_view left(std::size_t rank) const { return side(2 * rank); }
  std::string_view right(std::size_t rank) const { return side(2 * rank + 1); }

  void add_side(std::string_view text) {
    text_ += text;
    ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  }
  /// Call after every second side.
  void end_merge() { ++size_; }

 private:
  std::string_view side(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  std::string text_;
  std::vector<std::uint32_t> ends_;  // of sides in text_
  std::size_t size_ = 0;
};

struct TokenizerJson {
  Vocabulary vocabulary;                 ///< model.vocab
  MergeTexts merges;                     ///< model.merges
  std::vector<AddedToken> added_tokens;  ///< added_tokens, each in a form that is implemented
  nlohmann::json model;                  ///< the other keys of model; null when the file has no model
  nlohmann::json root;                   ///< the other keys of the file
};

/// Parses without building a tree of the large parts. Takes any bytes, at most 4 GiB of them. Throws
/// TokenizerError, with `source_name` in front, for what is not JSON, nests deeper than 16, repeats a key,
/// gives a piece or an id twice, or has a vocabulary, merges or added tokens of another form.
TokenizerJson parse_tokenizer_json(std::string_view json, const std::string& source_name);

}  // namespace gemmad
