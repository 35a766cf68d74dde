// What comes out of an image file, before its colours are those of a screen and it stands upright.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gemmad {

struct FileImage {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;              // 1 grey, 3 RGB, 4 CMYK where 0 is no ink
  std::vector<std::uint8_t> samples;      // [H, W, channels]
  std::vector<std::byte> colour_profile;  // ICC, unchecked; empty: none
  int orientation = 1;                    // EXIF's
};

/// Profiles of more bytes are left aside: those of printing presses have some 2 MB.
inline constexpr std::size_t kMaxProfileBytes = 8'000'000;

}  // namespace gemmad
