// A picture in memory, how large one may be, and the error class of this folder.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace gemmad {

/// What this folder throws: names what is wrong with a client's picture, the value, the limit and what to do.
class ImageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RgbImage {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // [H, W, 3] sRGB
};

/// Decoding takes at most 12 bytes a pixel, those of the result included, and 50 MB besides.
struct ImageLimits {
  std::int64_t max_file_bytes = 32 << 20;
  std::int64_t max_pixels = 64'000'000;  // height * width
  std::int64_t max_side = 32'768;
};

/// Throws ImageError unless both sides are at least 1 and within `limits`, and so is their product.
void check_size(std::int64_t height, std::int64_t width, const ImageLimits& limits);

}  // namespace gemmad
