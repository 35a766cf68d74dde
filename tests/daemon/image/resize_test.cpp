#include "daemon/image/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "daemon/image/prompt_pixels.h"
#include "tests/daemon/image/image_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

using test::largest_difference;
using test::seeded_image;

TensorFile expected_file() {
  return TensorFile(test::image_folder() / "expected.safetensors");
}

std::string named(const char* kind, std::initializer_list<std::int64_t> numbers) {
  std::string name = kind;
  for (const std::int64_t number : numbers)
    name += "." + std::to_string(number);
  return name;
}

// Bilinear, in double, at the place that output (y, x) has in the input.
double exact_level(const RgbImage& image, double y, double x, std::int64_t c) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    row = std::clamp<std::int64_t>(row, 0, image.height - 1);
    column = std::clamp<std::int64_t>(column, 0, image.width - 1);
    return static_cast<double>(image.pixels[static_cast<std::size_t>((row * image.width + column) * 3 + c)]);
  };
  const double top = std::floor(y);
  const double left = std::floor(x);
  const auto row = static_cast<std::int64_t>(top);
  const auto column = static_cast<std::int64_t>(left);
  const double upper = std::lerp(at(row, column), at(row, column + 1), x - left);
  const double lower = std::lerp(at(row + 1, column), at(row + 1, column + 1), x - left);
  return std::lerp(upper, lower, y - top);
}

}  // namespace

TEST_CASE("The longer side becomes what is asked for, with torch's pixels") {
  const TensorFile expected = expected_file();
  for (const auto& [height, width, side] :
       {std::array{73, 100, 64}, std::array{100, 73, 160}, std::array{1, 1, 7}, std::array{5, 3, 40},
        std::array{64, 48, 64}, std::array{90, 11, 60}, std::array{17, 96, 96}}) {
    const std::string name = named("long_side", {height, width, side});
    INFO(name);
    const RgbImage image = resize_to_long_side(seeded_image(height, width), side);
    CHECK(std::max(image.height, image.width) == side);
    CHECK(largest_difference(image, expected.get(name)) == 0);
  }
}

TEST_CASE("The longer side is resized as the formula says") {
  // Two roundings to 8 bits, each half a level and the first one weighted by 1 at most; the weights' 14 bits
  // or more add 255 / 2^14 twice.
  constexpr double kLevels = 1.0 + 2 * 255.0 / (1 << 14);
  for (const auto& [height, width, side] :
       {std::array{73, 100, 896}, std::array{200, 31, 150}, std::array{31, 200, 301}}) {
    const RgbImage image = seeded_image(height, width, 7);
    const RgbImage out = resize_to_long_side(image, side);
    const double scale = static_cast<double>(side) / std::max(height, width);
    REQUIRE(out.height == static_cast<std::int64_t>(height * scale));
    REQUIRE(out.width == static_cast<std::int64_t>(width * scale));
    const double fill =
        std::max(static_cast<double>(out.height) / height, static_cast<double>(out.width) / width);
    const double full_height = std::ceil(height * fill);
    const double full_width = std::ceil(width * fill);
    const double top = std::floor((full_height - static_cast<double>(out.height)) / 2);
    const double left = std::floor((full_width - static_cast<double>(out.width)) / 2);
    double worst = 0;
    for (std::int64_t y = 0; y < out.height; ++y) {
      for (std::int64_t x = 0; x < out.width; ++x) {
        const double from_y =
            std::max((static_cast<double>(y) + top + 0.5) * height / full_height - 0.5, 0.0);
        const double from_x = std::max((static_cast<double>(x) + left + 0.5) * width / full_width - 0.5, 0.0);
        for (std::int64_t c = 0; c < 3; ++c) {
          const double level = out.pixels[static_cast<std::size_t>((y * out.width + x) * 3 + c)];
          worst = std::max(worst, std::abs(level - exact_level(image, from_y, from_x, c)));
        }
      }
    }
    CHECK(worst <= kLevels);
  }
}

TEST_CASE("A picture of which no pixel of the shorter side would be left is refused") {
  CHECK_THROWS_AS(resize_to_long_side(seeded_image(1, 10000), 896), ImageError);
  CHECK_THROWS_AS(resize_to_long_side(seeded_image(897, 1), 896), ImageError);
  CHECK(resize_to_long_side(seeded_image(896, 1), 896).width == 1);
}

TEST_CASE("Shrinking and enlarging have Pillow's pixels") {
  const TensorFile expected = expected_file();
  for (const auto& [height, width, to_height, to_width] :
       {std::array{73, 100, 56, 56}, std::array{7, 5, 56, 56}, std::array{56, 9, 56, 56},
        std::array{9, 56, 56, 56}, std::array{1, 1, 8, 8}, std::array{300, 2, 28, 28},
        std::array{3, 200, 42, 42}}) {
    const std::string name = named("pillow", {height, width, to_height, to_width});
    INFO(name);
    CHECK(largest_difference(resize_pillow(seeded_image(height, width), to_height, to_width),
                             expected.get(name)) == 0);
  }
}

TEST_CASE("A picture of the right size stays as it is") {
  const RgbImage image = seeded_image(20, 30);
  CHECK(resize_pillow(image, 20, 30).pixels == image.pixels);
  CHECK(resize_to_long_side(image, 30).pixels == image.pixels);
}

TEST_CASE("A picture of one colour keeps it through both") {
  for (const int level : {0, 1, 127, 254, 255}) {
    RgbImage image = seeded_image(50, 33);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<std::uint8_t>(level));
    const std::vector<std::uint8_t> pixels = prompt_pixels(image, 56);
    CHECK(std::all_of(pixels.begin(), pixels.end(),
                      [level = level](std::uint8_t other) { return other == level; }));
  }
}

TEST_CASE("A prompt's pixels went through both resizes") {
  const TensorFile expected = expected_file();
  const RgbImage image{56, 56, prompt_pixels(seeded_image(50, 40), 56)};
  CHECK(largest_difference(image, expected.get("prompt.50.40.56")) == 0);
}

}  // namespace gemmad
