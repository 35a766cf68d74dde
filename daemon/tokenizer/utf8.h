// UTF-8, checked strictly and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gemmad {

/// Bytes of `bytes` up to the first that is not part of a well-formed code point; bytes.size() when all are.
/// Strict: no surrogates, no overlong forms, nothing above U+10FFFF. Any byte, NUL too, may come in.
std::size_t valid_utf8_prefix(std::string_view bytes);

/// True when all of `bytes` is well-formed.
bool is_valid_utf8(std::string_view bytes);

/// Reads the code point at `position` and moves `position` behind it.
/// `valid_utf8` must be well-formed, and `position` < size must be the start of a code point.
inline char32_t read_code_point(std::string_view valid_utf8, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(valid_utf8[position + i]); };
  const std::uint32_t lead = byte(0);
  char32_t code_point;
  if (lead < 0x80) {
    code_point = lead;
    position += 1;
  } else if (lead < 0xE0) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3Fu);
    position += 2;
  } else if (lead < 0xF0) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    position += 3;
  } else {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    position += 4;
  }
  return code_point;
}

/// Appends the UTF-8 of `code_point`, a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace gemmad
