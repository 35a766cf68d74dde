#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector_math.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

double gelu(double g) {
  const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
  return g / (1 + std::exp(-2 * inner));  // 1 + tanh cancels for negative g even in double
}

struct Widths {
  std::int64_t width;
  std::int64_t block;
};

}  // namespace

TEST_CASE("exp_clamped is within an ulp of exp over its whole range") {
  double worst_ulp = 0;
  for (int i = -870000; i <= 880000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    const double expected = std::exp(double{x});
    const auto rounded = static_cast<float>(expected);
    const double ulp = std::nextafter(rounded, INFINITY) - double{rounded};
    worst_ulp = std::max(worst_ulp, std::abs(cpu::exp_clamped(x) - expected) / ulp);
  }
  CHECK(worst_ulp <= 1.1);  // fused or not, the steps round differently
}

TEST_CASE("exp_clamped stays finite and positive outside its range") {
  CHECK(cpu::exp_clamped(-1e30f) == cpu::exp_clamped(-87.0f));
  CHECK(cpu::exp_clamped(1e30f) == cpu::exp_clamped(88.0f));
  CHECK(cpu::exp_clamped(-INFINITY) > 0);
  CHECK(std::isfinite(cpu::exp_clamped(INFINITY)));
  CHECK(cpu::exp_clamped(0.0f) == 1.0f);
}

TEST_CASE("geglu matches double precision for one block a row and for several") {
  const auto [width, block] =
      GENERATE(Widths{1, 1}, Widths{7, 7}, Widths{7, 1}, Widths{16, 16}, Widths{16, 4}, Widths{99, 33},
               Widths{2048, 2048}, Widths{2048, 256}, Widths{2053, 2053}, Widths{2054, 1027});
  const std::int64_t rows = GENERATE(1, 37);
  CAPTURE(width, block, rows);
  OpTesting testing;
  const std::vector<float> gate_up = random_values(rows * 2 * width, 3, 3.0f);
  const DeviceTensor out = testing.empty({rows, width});
  testing.ops().geglu(testing.put(gate_up, {rows, 2 * width}).view, block, out.view, testing.stream());
  std::vector<double> expected;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      const float* gate = gate_up.data() + row * 2 * width + column / block * 2 * block + column % block;
      expected.push_back(gelu(gate[0]) * gate[block]);
    }
  }
  const std::vector<float> actual = testing.get(out.view);
  // Rounding of the exponent's argument u costs |u| eps relative; where that is large (u > 20) the value is
  // below 1e-7.
  const Comparison result =
      compare_elements({actual.data(), DType::kF32, {rows, width}}, expected, 1e-11, 64 * kEps);
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("geglu goes to the gate and to zero at its ends") {
  OpTesting testing;
  const DeviceTensor in = testing.put({1e4f, -1e4f, 0.0f, 30.0f, 2.0f, 2.0f, 2.0f, 2.0f}, {1, 8});
  const DeviceTensor out = testing.empty({1, 4});
  testing.ops().geglu(in.view, 4, out.view, testing.stream());
  const std::vector<float> actual = testing.get(out.view);
  CHECK(actual[0] == 2e4f);
  CHECK(std::abs(actual[1]) < 1e-30f);
  CHECK(actual[2] == 0.0f);
  CHECK(actual[3] == 60.0f);
}

}  // namespace gemmad
