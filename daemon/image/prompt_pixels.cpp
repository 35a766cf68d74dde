#include "daemon/image/prompt_pixels.h"

#include "daemon/image/resize.h"

namespace gemmad {

std::vector<std::uint8_t> prompt_pixels(const RgbImage& image, std::int64_t image_size) {
  return resize_pillow(resize_to_long_side(image, kLtxLongSide), image_size, image_size).pixels;
}

}  // namespace gemmad
