#include "daemon/tokenizer/utf8.h"

#include <cstring>

namespace gemmad {
namespace {

/// Bytes of the code point at bytes[position], or 0 when it is not well-formed.
std::size_t code_point_bytes(std::string_view bytes, std::size_t position) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return position + i < bytes.size() ? static_cast<unsigned char>(bytes[position + i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation, or an overlong form of one byte
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  // The second byte's range shuts out overlong forms, surrogates and what lies above U+10FFFF.
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead < 0xF0) {
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (lead > 0xF4) return 0;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    std::uint64_t word = 0;
    if (bytes.size() - position >= sizeof word) {
      std::memcpy(&word, bytes.data() + position, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        position += sizeof word;
        continue;
      }
    }
    const std::size_t length = code_point_bytes(bytes, position);
    if (length == 0) break;
    position += length;
  }
  return position;
}

bool is_valid_utf8(std::string_view bytes) {
  return valid_utf8_prefix(bytes) == bytes.size();
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const std::uint32_t c = code_point;
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace gemmad
