#include "daemon/tokenizer/prompt_encoder.h"

#include <stdexcept>
#include <string>

#include "daemon/tokenizer/utf8.h"

namespace gemmad {
namespace {

bool is_python_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// True when `bytes`, one to three of them, are a white space character and nothing else.
bool is_white_space(std::string_view bytes) {
  if (!is_valid_utf8(bytes)) return false;
  std::size_t position = 0;
  return is_python_white_space(read_code_point(bytes, position)) && position == bytes.size();
}

}  // namespace

std::string_view strip_white_space(std::string_view utf8) {
  // No white space character is longer than three bytes, and none ends or starts another.
  constexpr std::size_t kMaxBytes = 3;
  const auto bytes_at = [](std::string_view text, bool at_front) -> std::size_t {
    for (std::size_t length = 1; length <= kMaxBytes && length <= text.size(); ++length) {
      if (is_white_space(at_front ? text.substr(0, length) : text.substr(text.size() - length)))
        return length;
    }
    return 0;
  };
  while (const std::size_t length = bytes_at(utf8, true))
    utf8.remove_prefix(length);
  while (const std::size_t length = bytes_at(utf8, false))
    utf8.remove_suffix(length);
  return utf8;
}

EncodedPrompt encode_prompt(const Tokenizer& tokenizer, std::string_view utf8, std::int64_t max_tokens) {
  if (max_tokens < 1) {
    throw std::invalid_argument("max_tokens is " + std::to_string(max_tokens) + "; BOS alone needs 1");
  }
  EncodedPrompt prompt;
  prompt.ids = tokenizer.encode(strip_white_space(utf8));
  if (prompt.ids.empty() || prompt.ids.front() != tokenizer.bos_id()) {
    prompt.ids.insert(prompt.ids.begin(), tokenizer.bos_id());
  }
  prompt.num_tokens = static_cast<std::int64_t>(prompt.ids.size());
  prompt.truncated = prompt.num_tokens > max_tokens;
  if (prompt.truncated) prompt.ids.resize(static_cast<std::size_t>(max_tokens));
  return prompt;
}

}  // namespace gemmad
