#include "daemon/image/base64.h"

#include <array>
#include <cstdint>
#include <string>

#include "daemon/image/image.h"

namespace gemmad {
namespace {

constexpr std::uint8_t kNone = 0xFF;

constexpr std::array<std::uint8_t, 256> make_values() {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> values{};
  values.fill(kNone);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return values;
}

constexpr std::array<std::uint8_t, 256> kValues = make_values();

std::uint32_t value_at(std::string_view text, std::size_t place) {
  const std::uint8_t value = kValues[static_cast<unsigned char>(text[place])];
  if (value == kNone) {
    throw ImageError("the base64 has a wrong character at byte " + std::to_string(place) +
                     ": A-Z, a-z, 0-9, + and / are right, and = at the end");
  }
  return value;
}

}  // namespace

std::vector<std::byte> decode_base64(std::string_view text, std::size_t max_bytes) {
  if (text.size() % 4 != 0) {
    throw ImageError("the base64 has " + std::to_string(text.size()) +
                     " characters, no multiple of 4: pad it with =, and leave out spaces and line ends");
  }
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=')
    ++padding;
  const std::size_t size = text.size() / 4 * 3 - padding;
  if (size > max_bytes) {
    throw ImageError("the base64 holds " + std::to_string(size) + " bytes, but at most " +
                     std::to_string(max_bytes) + " are taken: send a smaller image");
  }
  std::vector<std::byte> bytes;
  bytes.reserve(size);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    bits = bits << 6 | value_at(text, i);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> num_bits & 0xFF));
  }
  if ((bits & ((1U << num_bits) - 1)) != 0)
    throw ImageError("the base64 has bits set behind its last byte: encode it anew");
  return bytes;
}

}  // namespace gemmad
