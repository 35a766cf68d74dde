#include <algorithm>
#include <cmath>

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

TEST_CASE("geglu matches double precision for one block a row and for several") {
  const auto [width, block] =
      GENERATE(Widths{1, 1}, Widths{7, 7}, Widths{7, 1}, Widths{16, 16}, Widths{16, 4}, Widths{99, 33},
               Widths{2048, 2048}, Widths{2048, 256}, Widths{2053, 2053}, Widths{2054, 1027});
  const std::int64_t rows = GENERATE(1, 37);
  CAPTURE(width, block, rows);
  OpTesting testing;
  const std::vector<float> gate_up = testing.rounded(random_values(rows * 2 * width, 3, 3.0f));
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
  const Comparison result = compare_elements({actual.data(), DType::kF32, {rows, width}}, expected, 1e-11,
                                             64 * kEps + 2.01 * testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("geglu goes to the gate and to zero at its ends") {
  OpTesting testing;
  const DeviceTensor in = testing.put({1e4f, -1e4f, 0.0f, 30.0f, 2.0f, 2.0f, 2.0f, 2.0f}, {1, 8});
  const DeviceTensor out = testing.empty({1, 4});
  testing.ops().geglu(in.view, 4, out.view, testing.stream());
  const std::vector<float> actual = testing.get(out.view);
  CHECK(actual[0] == 2 * testing.rounded({1e4f}).front());
  CHECK(std::abs(actual[1]) < 1e-30f);
  CHECK(actual[2] == 0.0f);
  CHECK(actual[3] == 60.0f);
}

TEST_CASE("gemm_geglu is gemm and then geglu") {
  struct Sizes {
    std::int64_t rows, inputs, width, block;
  };
  const Sizes sizes =
      GENERATE(Sizes{1, 8, 3, 3}, Sizes{17, 96, 128, 64}, Sizes{128, 640, 256, 64}, Sizes{300, 128, 192, 64},
               Sizes{16, 72, 128, 32}, Sizes{2, 40, 24, 8}, Sizes{3, 136, 5, 1}, Sizes{4, 1032, 30, 10},
               Sizes{8, 256, 4224, 64}, Sizes{1, 3840, 128, 64});
  CAPTURE(sizes.rows, sizes.inputs, sizes.width, sizes.block);
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(sizes.rows * sizes.inputs, 1), {sizes.rows, sizes.inputs});
  const float deviation = 1 / std::sqrt(static_cast<float>(sizes.inputs));
  const DeviceTensor w = testing.put(random_values(2 * sizes.width * sizes.inputs, 2, deviation),
                                     {2 * sizes.width, sizes.inputs});
  const DeviceTensor scratch = testing.empty({sizes.rows, 2 * sizes.width});
  const std::vector<float> nothing(static_cast<std::size_t>(sizes.rows * sizes.width), NAN);
  const DeviceTensor together = testing.put(nothing, {sizes.rows, sizes.width});
  const DeviceTensor apart = testing.put(nothing, {sizes.rows, sizes.width});
  Ops& ops = testing.ops();
  ops.gemm_geglu(x.view, w.view, sizes.block, scratch.view, together.view, testing.stream());
  ops.gemm(x.view, w.view, scratch.view, testing.stream());
  ops.geglu(scratch.view, sizes.block, apart.view, testing.stream());

  const std::vector<float> actual = testing.get(together.view);
  const std::vector<float> expected = testing.get(apart.view);
  // Sums in another order may round gate and up the other way: one step each.
  const Comparison result = compare_elements({actual.data(), DType::kF32, {sizes.rows, sizes.width}},
                                             std::vector<double>(expected.begin(), expected.end()),
                                             64 * kEps + 4 * testing.rounding(), 5 * testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace gemmad
