#include "daemon/model/ltx/connector_rope.h"

#include <cmath>
#include <cstddef>
#include <stdexcept>

#include "kernels/base/float_formats.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

void check_number(float actual, double expected, double relative) {
  CAPTURE(actual, expected);
  CHECK(std::abs(actual - expected) <= relative * std::abs(expected));
}

}  // namespace

TEST_CASE("Frequencies of the published connectors") {
  const std::vector<float> of_video = connector_frequencies(4096, true);
  REQUIRE(of_video.size() == 2048);
  check_number(of_video[0], 1.5707963705, 1e-9);
  check_number(of_video[1], 1.5778799057, 1e-9);
  check_number(of_video[1024], 157.4334106, 1e-9);
  check_number(of_video[2046], 15637.44531, 1e-9);
  check_number(of_video[2047], 15707.96289, 1e-9);
  check_number(connector_frequencies(3840, true)[1], 1.5783535242, 1e-9);
  check_number(connector_frequencies(2048, true)[1], 1.5850024223, 1e-9);
}

TEST_CASE("The fp32 grid is near the other, and not the same") {
  const std::vector<float> exact = connector_frequencies(3840, true);
  const std::vector<float> rounded = connector_frequencies(3840, false);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    check_number(rounded[i], exact[i], 6e-7);
    differing += rounded[i] != exact[i] ? 1 : 0;
  }
  CHECK(differing > exact.size() / 4);
  CHECK(rounded.front() == exact.front());
}

TEST_CASE("The fp32 grid of a tiny connector, whose last bits LTX-2's embeddings show") {
  const std::vector<float> grid = connector_frequencies(96, false);
  // The correctly rounded power; LTX-2's is one bit less here and the same everywhere else.
  CHECK(grid[4] == 3.43989706f);
  CHECK(grid.back() == 15707.9639f);
}

TEST_CASE("A row holds cosines, then sines, of one fp32 product") {
  const std::vector<float> table = make_connector_rope(4096, true, 4096, 1024);
  REQUIRE(table.size() == 1024 * 4096);
  const float* const row = table.data() + 4096;
  check_number(bf16_to_f32(f32_to_bf16(row[0])), 0.00076675, 1e-4);
  CHECK(bf16_to_f32(f32_to_bf16(row[2048])) == -1.0f);
  CHECK(bf16_to_f32(f32_to_bf16(row[1024])) == 0.9609375f);
  CHECK(bf16_to_f32(f32_to_bf16(row[2048 + 1024])) == -0.2734375f);
  const float angle = connector_frequencies(4096, true)[2047] * -0.50048828125f;
  CHECK(table[1023 * 4096 + 2047] == static_cast<float>(std::cos(double{angle})));
  CHECK(table[1023 * 4096 + 4095] == static_cast<float>(std::sin(double{angle})));
}

TEST_CASE("Bad sizes of rotary positions are refused") {
  CHECK_THROWS_AS(connector_frequencies(2, true), std::invalid_argument);
  CHECK_THROWS_AS(connector_frequencies(7, true), std::invalid_argument);
  CHECK_THROWS_AS(make_connector_rope(8, true, 0, 128), std::invalid_argument);
  CHECK_THROWS_AS(make_connector_rope(8, true, 1, 0), std::invalid_argument);
}

}  // namespace gemmad
