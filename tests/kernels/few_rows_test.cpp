// Products of the fewest rows, which a device may compute in its own way: as generation goes, a row a
// sequence.
#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

struct Sizes {
  std::int64_t inputs;
  std::int64_t outputs;
};

// `matrix`, [rows, columns], with `margin` NaN behind every row.
std::vector<float> with_margin(const std::vector<float>& matrix, std::int64_t columns, std::int64_t margin) {
  const std::int64_t rows = static_cast<std::int64_t>(matrix.size()) / columns;
  std::vector<float> whole(static_cast<std::size_t>(rows * (columns + margin)), NAN);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(matrix.begin() + row * columns, columns, whole.begin() + row * (columns + margin));
  return whole;
}

}  // namespace

TEST_CASE("gemm of one to eight rows matches double precision, with weights and results in larger matrices") {
  const std::int64_t rows = GENERATE(1, 2, 3, 4, 5, 7, 8);
  const Sizes sizes = GENERATE(Sizes{8, 1}, Sizes{40, 15}, Sizes{136, 16}, Sizes{1000, 33}, Sizes{1032, 17},
                               Sizes{3840, 64}, Sizes{64, 4300});
  const auto [inputs, outputs] = sizes;
  CAPTURE(rows, inputs, outputs);
  OpTesting testing;
  constexpr std::int64_t kMargin = 8, kMarginOfY = 5;
  const std::vector<float> x = testing.rounded(random_values(rows * inputs, 1));
  const std::vector<float> w = testing.rounded(random_values(outputs * inputs, 2));
  const DeviceTensor x_at = testing.put(x, {rows, inputs});
  const DeviceTensor w_at = testing.put(with_margin(w, inputs, kMargin), {outputs, inputs + kMargin});
  const DeviceTensor y_at =
      testing.put(std::vector<float>(static_cast<std::size_t>(rows * (outputs + kMarginOfY)), 7.0f),
                  {rows, outputs + kMarginOfY});
  testing.ops().gemm(x_at.view, ConstMatrixView(w_at.view).column_range(0, inputs),
                     MatrixView(y_at.view).column_range(0, outputs), testing.stream());
  const std::vector<float> y = testing.get(y_at.view);
  // The sum makes about sqrt(I) roundings of partial sums below |x| |w|, about I for normal values; 4 leaves
  // room. Tensor cores cut off what they add instead of rounding it.
  const double sum_limit = (testing.rounding() > 0 ? 16 : 4) * kEps * static_cast<double>(inputs);
  for (std::int64_t n = 0; n < rows; ++n) {
    const float* const y_row = y.data() + n * (outputs + kMarginOfY);
    for (std::int64_t o = 0; o < outputs; ++o) {
      double expected = 0;
      for (std::int64_t i = 0; i < inputs; ++i)
        expected +=
            double{x[static_cast<std::size_t>(n * inputs + i)]} * w[static_cast<std::size_t>(o * inputs + i)];
      CAPTURE(n, o);
      if (!(std::abs(y_row[o] - expected) <= sum_limit + testing.rounding() * std::abs(expected)))
        FAIL_CHECK("is " << y_row[o] << ", must be " << expected);
    }
    CHECK(std::all_of(y_row + outputs, y_row + outputs + kMarginOfY, [](float v) { return v == 7.0f; }));
  }
}

TEST_CASE("A row of few that is not a number leaves the others as they are") {
  OpTesting testing;
  std::vector<float> x = random_values(4 * 256, 1);
  const DeviceTensor w = testing.put(random_values(48 * 256, 2), {48, 256});
  const DeviceTensor y = testing.empty({4, 48});
  const auto product = [&] {
    const DeviceTensor x_at = testing.put(x, {4, 256});
    testing.ops().gemm(x_at.view, w.view, y.view, testing.stream());
    return testing.get(y.view);
  };
  const std::vector<float> before = product();
  x[2 * 256 + 17] = NAN;
  const std::vector<float> after = product();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i / 48 == 2)
      CHECK(std::isnan(after[i]));
    else
      CHECK(after[i] == before[i]);
  }
}

}  // namespace gemmad
