// Any bytes as an image file: a picture within the limits, or ImageError. PNG files are tried once more with
// the checksums of their chunks set right, since a mutated chunk is hardly ever looked into otherwise.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "daemon/image/decode_image.h"
#include "daemon/image/png_file.h"

namespace {

void decode(std::span<const std::uint8_t> file) {
  const gemmad::ImageLimits limits{.max_file_bytes = 1 << 17, .max_pixels = 1 << 16, .max_side = 1 << 14};
  try {
    const gemmad::RgbImage image = gemmad::decode_image(std::as_bytes(file), limits);
    if (image.height < 1 || image.width < 1 || image.height * image.width > limits.max_pixels) std::abort();
    if (image.pixels.size() != static_cast<std::size_t>(image.height * image.width) * 3) std::abort();
  } catch (const gemmad::ImageError&) {
  }
}

std::uint32_t crc(std::span<const std::uint8_t> bytes) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const std::uint8_t byte : bytes) {
    rest ^= byte;
    for (int i = 0; i < 8; ++i)
      rest = rest >> 1 ^ (0xEDB88320 & (0 - (rest & 1)));
  }
  return ~rest;
}

void set_checksums_right(std::vector<std::uint8_t>& png) {
  constexpr std::size_t kFrame = 12;  // length, name and checksum of a chunk
  for (std::size_t at = 8; at + kFrame <= png.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | png[at + i];
    if (length > png.size() - at - kFrame) return;
    const std::uint32_t sum = crc(std::span(png).subspan(at + 4, length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      png[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += kFrame + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> input(data, size);
  decode(input);
  if (gemmad::is_png(std::as_bytes(input))) {
    std::vector<std::uint8_t> right(input.begin(), input.end());
    set_checksums_right(right);
    decode(right);
  }
  return 0;
}
