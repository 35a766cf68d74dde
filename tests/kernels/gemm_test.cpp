#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

struct Sizes {
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
};

// Error of a dot product of n terms in fp32: about sqrt(n) roundings of partial sums below |x| |w|; 4 leaves
// room.
double limit(const float* x, const float* w, std::int64_t count) {
  double x_norm = 0;
  double w_norm = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    x_norm += double{x[i]} * x[i];
    w_norm += double{w[i]} * w[i];
  }
  return 4 * kEps * std::sqrt(x_norm * w_norm);  // and the result's rounding
}

constexpr std::int64_t kMargin = 3;  // rows and columns on every side

Shape frame(std::int64_t rows, std::int64_t columns) {
  return {rows + 2 * kMargin, columns + 2 * kMargin};
}

// `matrix` inside a larger one whose other elements are all `around`.
std::vector<float> framed(const std::vector<float>& matrix, std::int64_t columns, float around) {
  const std::int64_t rows = static_cast<std::int64_t>(matrix.size()) / columns;
  const Shape shape = frame(rows, columns);
  std::vector<float> whole(static_cast<std::size_t>(shape.num_elements()), around);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(matrix.begin() + row * columns, columns,
                whole.begin() + (row + kMargin) * shape[1] + kMargin);
  }
  return whole;
}

MatrixView inside(MatrixView whole) {
  return whole.row_range(kMargin, whole.rows - kMargin).column_range(kMargin, whole.columns - kMargin);
}

}  // namespace

TEST_CASE("gemm matches double precision") {
  const Sizes sizes =
      GENERATE(Sizes{1, 1, 1}, Sizes{1, 640, 1536}, Sizes{2, 3, 5}, Sizes{15, 64, 17}, Sizes{16, 256, 16},
               Sizes{17, 33, 31}, Sizes{97, 101, 103}, Sizes{33, 641, 4}, Sizes{300, 96, 64},
               Sizes{5, 2048, 7}, Sizes{128, 640, 512}, Sizes{64, 1152, 384});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(sizes.rows, sizes.inputs, sizes.outputs, num_threads);
  OpTesting testing(num_threads);
  const std::vector<float> x = testing.rounded(random_values(sizes.rows * sizes.inputs, 1));
  const std::vector<float> w = testing.rounded(random_values(sizes.outputs * sizes.inputs, 2));
  const DeviceTensor y = testing.empty({sizes.rows, sizes.outputs});
  testing.ops().gemm(testing.put(x, {sizes.rows, sizes.inputs}).view,
                     testing.put(w, {sizes.outputs, sizes.inputs}).view, y.view, testing.stream());
  const std::vector<float> actual = testing.get(y.view);

  double worst = 0;
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    for (std::int64_t column = 0; column < sizes.outputs; ++column) {
      const float* a = x.data() + row * sizes.inputs;
      const float* b = w.data() + column * sizes.inputs;
      double expected = 0;
      for (std::int64_t i = 0; i < sizes.inputs; ++i)
        expected += double{a[i]} * b[i];
      const double error =
          std::abs(actual[static_cast<std::size_t>(row * sizes.outputs + column)] - expected);
      worst = std::max(worst, error / (limit(a, b, sizes.inputs) + testing.rounding() * std::abs(expected)));
      REQUIRE(std::isfinite(error));
    }
  }
  CHECK(worst <= 1);
}

TEST_CASE("gemm on parts of larger matrices gives the same values and writes nothing around its part") {
  const Sizes sizes = GENERATE(Sizes{1, 1, 1}, Sizes{1, 64, 33}, Sizes{2, 3, 5}, Sizes{17, 33, 31},
                               Sizes{97, 101, 103}, Sizes{33, 641, 4}, Sizes{130, 96, 64}, Sizes{5, 256, 48});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(sizes.rows, sizes.inputs, sizes.outputs, num_threads);
  OpTesting testing(num_threads);
  const DeviceTensor x = testing.put(random_values(sizes.rows * sizes.inputs, 1), {sizes.rows, sizes.inputs});
  const std::vector<float> w = random_values(sizes.outputs * sizes.inputs, 2);
  const DeviceTensor y = testing.empty({sizes.rows, sizes.outputs});
  testing.ops().gemm(x.view, testing.put(w, {sizes.outputs, sizes.inputs}).view, y.view, testing.stream());
  const std::vector<float> product = testing.get(y.view);

  constexpr float kUntouched = 77;
  const DeviceTensor framed_w = testing.put(framed(w, sizes.inputs, NAN), frame(sizes.outputs, sizes.inputs));
  const std::vector<float> old_y(product.size(), NAN);
  const DeviceTensor framed_y =
      testing.put(framed(old_y, sizes.outputs, kUntouched), frame(sizes.rows, sizes.outputs));
  testing.ops().gemm(x.view, inside(framed_w.view), inside(framed_y.view), testing.stream());
  const std::vector<float> expected = framed(product, sizes.outputs, kUntouched);
  const std::vector<float> actual = testing.get(framed_y.view);
  // A device may take another way for other strides.
  const double limit = testing.rounding() > 0 ? 64 * std::sqrt(static_cast<double>(sizes.inputs)) * kEps : 0;
  const Comparison result =
      compare_elements({actual.data(), DType::kF32, frame(sizes.rows, sizes.outputs)},
                       std::vector<double>(expected.begin(), expected.end()), limit, 2 * testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == kUntouched) REQUIRE(actual[i] == kUntouched);
  }
}

TEST_CASE("gemm over no inputs gives zeros") {
  OpTesting testing;
  const DeviceTensor y = testing.put(random_values(6, 1), {2, 3});
  testing.ops().gemm(testing.empty({2, 0}).view, testing.empty({3, 0}).view, y.view, testing.stream());
  CHECK(testing.get(y.view) == std::vector<float>(6, 0.0f));
}

TEST_CASE("gemm of no rows does nothing") {
  OpTesting testing;
  const DeviceTensor w = testing.put(random_values(6, 1), {2, 3});
  const DeviceTensor x = testing.empty({0, 3});
  const DeviceTensor y = testing.empty({0, 2});
  testing.ops().gemm(x.view, w.view, y.view, testing.stream());
  CHECK(testing.get(y.view).empty());
}

}  // namespace gemmad
