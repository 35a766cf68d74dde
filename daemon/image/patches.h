// The numbers that the vision tower takes.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/image/image.h"

namespace gemmad {

/// [G * G, padded_width] fp32, a row a patch of patch x patch pixels, row-major over the grid, G = side /
/// patch. Within a row [3, patch, patch]: a convolution's weight [C_out, 3, patch, patch], flattened,
/// multiplies it as it is. Values are scaled to [-1, 1] as Gemma's processor scales them; columns behind 3 *
/// patch^2 are 0. `square` is as wide as high, a multiple of `patch`, and padded_width >= 3 * patch^2: else
/// std::invalid_argument.
std::vector<float> patches_of(const RgbImage& square, std::int64_t patch, std::int64_t padded_width);

}  // namespace gemmad
