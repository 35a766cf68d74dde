// PNG files.
#pragma once

#include <cstddef>
#include <span>

#include "daemon/image/file_image.h"
#include "daemon/image/image.h"

namespace gemmad {

bool is_png(std::span<const std::byte> file);

/// 1 or 3 channels: palettes are looked up, alpha and transparent colours are dropped, of 16 bits the upper 8
/// are taken. (Pillow does the same, but for grey of 16 bits without alpha, which it clips at 255: nearly all
/// white.) Of a palette's image the colour profile is dropped, as Pillow cannot apply it. Throws ImageError
/// for a size beyond `limits`, before anything is decoded, and for a file that is damaged or ends early.
FileImage decode_png(std::span<const std::byte> file, const ImageLimits& limits);

}  // namespace gemmad
