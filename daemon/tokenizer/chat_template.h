// The chat prompt with which Gemma 3 is asked for a better prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// How a model's prompt holds an image: `begin`, `count` times `soft`, `end`. Of its config: boi_token_index,
/// image_token_index, mm_tokens_per_image and eoi_token_index.
struct ImageTokens {
  std::int32_t begin = 0;
  std::int32_t soft = 0;
  std::int64_t count = 0;  // at least 1
  std::int32_t end = 0;
};

struct EnhancePrompt {
  std::string text;                              // as rendered; an image is its `begin` token
  std::vector<std::int32_t> ids;                 // of that, with the image's tokens
  std::optional<std::int64_t> first_soft_token;  // with an image: the index of its first soft token in `ids`
};

/// LTX-2's request to Gemma 3, up to where the model's answer begins: the system prompt as it is (none if
/// empty), then the user's, and before that the image where there is one (`image` not null). White space at
/// the prompt's end goes without an image and stays with one, where LTX-2 puts a dot behind it. `ids` begin
/// with two BOS: the template writes one and the tokenizer adds one, and so LTX-2 has it.
///
/// Both prompts are text and nothing else. LTX-2 passes control tokens in them on, such as "<end_of_turn>" or
/// "<start_of_image>", and so lets a prompt end its turn or claim images; here they are refused. Throws
/// TokenizerError for that, for text that is not valid UTF-8, and for a tokenizer that lacks tokens of the
/// template or of the image.
EnhancePrompt enhance_prompt(const Tokenizer& tokenizer, std::string_view system, std::string_view prompt,
                             const ImageTokens* image);

}  // namespace gemmad
