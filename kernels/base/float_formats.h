// Conversions between fp32 and the two 16-bit formats, by bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gemmad {

/// The value of a bfloat16. Exact.
constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to the nearest bfloat16, ties to even. NaN stays NaN; what is too large becomes infinite.
constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The value of an IEEE binary16. Exact, subnormals included.
constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -value : value;
}

/// Element `index` of an array of 16-bit values at any address: tensors of mapped files need not be aligned.
inline std::uint16_t load_u16(const std::byte* array, std::int64_t index) {
  std::uint16_t value;
  std::memcpy(&value, array + index * 2, sizeof value);
  return value;
}

/// Element `index` of an array of floats at any address.
inline float load_f32(const std::byte* array, std::int64_t index) {
  float value;
  std::memcpy(&value, array + index * 4, sizeof value);
  return value;
}

}  // namespace gemmad
