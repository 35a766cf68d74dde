// A prompt to the ids that the encoder runs on: the procedure of LTX-2.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

struct EncodedPrompt {
  std::vector<std::int32_t> ids;  ///< at most max_tokens, ids[0] is BOS
  std::int64_t num_tokens = 0;    ///< before the cut, BOS included
  bool truncated = false;         ///< num_tokens > max_tokens
};

/// Strips white space at both ends (what Python's str.strip takes for it), encodes, puts BOS in front unless
/// the first id is BOS already, and cuts behind `max_tokens` ids. So "" and "   " give BOS alone. Throws
/// TokenizerError when `utf8` is not valid UTF-8, std::invalid_argument when max_tokens < 1.
EncodedPrompt encode_prompt(const Tokenizer& tokenizer, std::string_view utf8, std::int64_t max_tokens);

/// `utf8` without the white space at its ends: U+0009..000D, 001C..0020, 0085, 00A0, 1680, 2000..200A, 2028,
/// 2029, 202F, 205F, 3000. A view of the argument's memory. Safe, if without much meaning, on invalid UTF-8.
std::string_view strip_white_space(std::string_view utf8);

}  // namespace gemmad
