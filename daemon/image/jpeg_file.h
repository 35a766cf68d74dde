// JPEG files.
#pragma once

#include <cstddef>
#include <span>

#include "daemon/image/file_image.h"
#include "daemon/image/image.h"

namespace gemmad {

bool is_jpeg(std::span<const std::byte> file);

/// 1 channel (grey), 3 (RGB, YCbCr) or 4 (CMYK, YCCK). The inks are taken for inverted, as Adobe writes them
/// and Pillow reads them, whatever the file says. Throws ImageError for a size beyond `limits` or more than
/// 50 scans, before they are decoded, and for a file that is damaged or ends early.
FileImage decode_jpeg(std::span<const std::byte> file, const ImageLimits& limits);

}  // namespace gemmad
