// Which way up a photograph is. Read by hand: libraries take the whole of EXIF apart, and copy every entry
// that says it is as long as the file.
#pragma once

#include <cstddef>
#include <span>

#include "daemon/image/image.h"

namespace gemmad {

/// The orientation, 1 to 8, in `tiff`: EXIF data from its byte order mark on. 1 where it has none, or is
/// damaged.
int exif_orientation(std::span<const std::byte> tiff);

/// Turned as LTX does: 3 by 180 degrees, 6 by 90 clockwise, 8 by 90 counter-clockwise; the others, which are
/// mirrored or upright, stay as they are.
RgbImage turn_upright(RgbImage image, int orientation);

}  // namespace gemmad
