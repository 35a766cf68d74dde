// From an image file's bytes to pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/image/image.h"

namespace gemmad {

/// PNG or JPEG, told by its first bytes: upright (EXIF), in sRGB (ICC), without alpha. The picture that LTX-2
/// decodes with Pillow, but for what png_file.h and exif.h say. Throws ImageError for any other file, one
/// beyond `limits` (by its header, before anything is decoded), a damaged one and one that ends early.
/// Takes some 20 ns a pixel, 120 for progressive JPEG: seconds for the largest.
RgbImage decode_image(std::span<const std::byte> file, const ImageLimits& limits);

/// Pixels as they are, [height, width, 3] RGB. Throws ImageError for a size beyond `limits` or another number
/// of bytes.
RgbImage raw_image(std::span<const std::byte> pixels, std::int64_t height, std::int64_t width,
                   const ImageLimits& limits);

}  // namespace gemmad
