#include "daemon/image/patches.h"

#include <array>
#include <stdexcept>
#include <string>

namespace gemmad {
namespace {

std::array<float, 256> scaled_levels() {
  std::array<float, 256> levels{};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto unit = static_cast<float>(static_cast<double>(i) * (1.0 / 255.0));
    levels[i] = (unit - 0.5F) / 0.5F;
  }
  return levels;
}

}  // namespace

std::vector<float> patches_of(const RgbImage& square, std::int64_t patch, std::int64_t padded_width) {
  const std::int64_t side = square.width;
  if (square.height != side || patch < 1 || side < 1 || side % patch != 0 ||
      padded_width < 3 * patch * patch) {
    throw std::invalid_argument("patches_of: " + std::to_string(side) + " x " +
                                std::to_string(square.height) + " pixels in patches of " +
                                std::to_string(patch) + ", rows of " + std::to_string(padded_width));
  }
  const std::array<float, 256> levels = scaled_levels();
  const std::int64_t grid = side / patch;
  std::vector<float> out(static_cast<std::size_t>(grid * grid * padded_width), 0.0F);
  for (std::int64_t y = 0; y < side; ++y) {
    const std::uint8_t* pixel = square.pixels.data() + y * side * 3;
    for (std::int64_t column = 0; column < grid; ++column) {
      float* line = out.data() + ((y / patch) * grid + column) * padded_width + y % patch * patch;
      for (std::int64_t x = 0; x < patch; ++x, pixel += 3) {
        for (std::int64_t c = 0; c < 3; ++c)
          line[c * patch * patch + x] = levels[pixel[c]];
      }
    }
  }
  return out;
}

}  // namespace gemmad
