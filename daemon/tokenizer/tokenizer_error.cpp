#include "daemon/tokenizer/tokenizer_error.h"

namespace gemmad {

void refuse(const std::string& source, const std::string& place, const std::string& reason) {
  throw TokenizerError(source + ": " + place + ": " + reason);
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_code_point = (byte & 0xC0) != 0x80;
    if (i >= kMaxBytes && starts_code_point) break;
    if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += text[i];
    }
  }
  return out + (i < text.size() ? "...\"" : "\"");
}

}  // namespace gemmad
