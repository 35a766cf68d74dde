// From a file's colours to those of a screen.
#pragma once

#include "daemon/image/file_image.h"
#include "daemon/image/image.h"

namespace gemmad {

/// Through the file's colour profile to sRGB, perceptually, where it has one that fits its channels. Else
/// grey is taken three times, and CMYK as Pillow does: (255 - ink) * (255 - black) / 255. The orientation is
/// left as it is. Throws nothing but std::bad_alloc.
RgbImage to_rgb(FileImage image);

}  // namespace gemmad
