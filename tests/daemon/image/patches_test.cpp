#include "daemon/image/patches.h"

#include <cstring>
#include <stdexcept>

#include "daemon/image/resize.h"
#include "tests/daemon/image/image_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {

TEST_CASE("Patches hold the values of Gemma's own processor, bit for bit") {
  const TensorFile golden(std::filesystem::path(GEMMAD_TEST_DATA) /
                          "models/gemma3-tiny/golden-image.safetensors");
  const ConstTensorView source = golden.get("image");
  REQUIRE(source.shape == Shape({73, 100, 3}));
  const RgbImage image =
      raw_image(std::span(static_cast<const std::byte*>(source.data), 73 * 100 * 3), 73, 100, {});
  const ConstTensorView values = golden.get("pixel_values.Gemma3ImageProcessorPil");
  REQUIRE(values.shape == Shape({1, 3, 56, 56}));
  const auto* expected = static_cast<const float*>(values.data);

  constexpr std::int64_t kPatch = 14;
  constexpr std::int64_t kGrid = 4;
  constexpr std::int64_t kWidth = 3 * kPatch * kPatch + 4;
  const std::vector<float> patches = patches_of(resize_pillow(image, 56, 56), kPatch, kWidth);
  REQUIRE(patches.size() == static_cast<std::size_t>(kGrid * kGrid * kWidth));
  std::size_t num_wrong = 0;
  for (std::int64_t p = 0; p < kGrid * kGrid; ++p) {
    const float* row = patches.data() + p * kWidth;
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t y = 0; y < kPatch; ++y) {
        for (std::int64_t x = 0; x < kPatch; ++x, ++row) {
          const float* wanted = expected + (c * 56 + p / kGrid * kPatch + y) * 56 + p % kGrid * kPatch + x;
          num_wrong += std::memcmp(row, wanted, sizeof *row) != 0 ? 1 : 0;
        }
      }
    }
    for (int i = 0; i < 4; ++i)
      num_wrong += *row++ != 0 ? 1 : 0;
  }
  CHECK(num_wrong == 0);
}

TEST_CASE("Patches that do not fit are the caller's mistake") {
  CHECK_THROWS_AS(patches_of(test::seeded_image(28, 29), 14, 588), std::invalid_argument);
  CHECK_THROWS_AS(patches_of(test::seeded_image(29, 29), 14, 588), std::invalid_argument);
  CHECK_THROWS_AS(patches_of(test::seeded_image(28, 28), 14, 587), std::invalid_argument);
  CHECK(patches_of(test::seeded_image(28, 28), 14, 588).size() == 4 * 588);
}

}  // namespace gemmad
