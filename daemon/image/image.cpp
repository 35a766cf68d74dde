#include "daemon/image/image.h"

#include <algorithm>
#include <string>

namespace gemmad {

void check_size(std::int64_t height, std::int64_t width, const ImageLimits& limits) {
  const std::string size =
      "the image is " + std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (height < 1 || width < 1) throw ImageError(size + ": send one of at least 1 x 1");
  if (std::max(height, width) > limits.max_side) {
    throw ImageError(size + ", but a side may have at most " + std::to_string(limits.max_side) +
                     ": send a smaller one");
  }
  if (height > limits.max_pixels / width) {
    throw ImageError(size + ", but at most " + std::to_string(limits.max_pixels) +
                     " pixels are taken: send a smaller one");
  }
}

}  // namespace gemmad
