// From a client's picture to the pixels that belong to a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/image/image.h"

namespace gemmad {

/// LTX-2 resizes every picture to this before the processor sees it.
inline constexpr std::int64_t kLtxLongSide = 896;

/// [image_size, image_size, 3] RGB: resized by LTX-2, then by Gemma's processor. Throws ImageError where the
/// picture is too thin for the first.
std::vector<std::uint8_t> prompt_pixels(const RgbImage& image, std::int64_t image_size);

}  // namespace gemmad
