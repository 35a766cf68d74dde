// The two ways in which LTX-2 and Gemma's processor resize a picture, to the bit. Both work on 8 bits, first
// along x and then along y, with integer weights and rounding to 8 bits after each.
#pragma once

#include <cstdint>

#include "daemon/image/image.h"

namespace gemmad {

/// LTX-2's first step: shrunk or enlarged so that the longer side is `long_side`, as torch's interpolate does
/// (bilinear, uint8, on the CPU, align_corners and antialias off), then cropped around the centre to the
/// truncated sizes. Throws ImageError where nothing would be left of the shorter side.
RgbImage resize_to_long_side(const RgbImage& image, std::int64_t long_side);

/// Pillow's resize with BILINEAR, which looks at all pixels that it shrinks. The aspect ratio is not kept.
/// (Pillow 13 goes along y first where that is less work; it makes no difference where one side stays, as
/// behind resize_to_long_side.)
RgbImage resize_pillow(const RgbImage& image, std::int64_t height, std::int64_t width);

}  // namespace gemmad
