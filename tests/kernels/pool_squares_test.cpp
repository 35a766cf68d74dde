#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {

TEST_CASE("pool_squares is the mean of each square of the grid") {
  struct Case {
    std::int64_t side;
    std::int64_t k;
    std::int64_t width;
  };
  const Case input =
      GENERATE(Case{1, 1, 5}, Case{4, 1, 48}, Case{6, 2, 33}, Case{8, 2, 1152}, Case{64, 4, 72},
               Case{12, 4, 1152}, Case{9, 3, 7}, Case{8, 8, 16}, Case{0, 2, 8});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(input.side, input.k, input.width, num_threads);
  OpTesting testing(num_threads);
  const std::int64_t squares = input.side / input.k;
  const std::vector<float> x = testing.rounded(random_values(input.side * input.side * input.width, 1));
  std::vector<double> expected;
  std::vector<double> limits;
  for (std::int64_t n = 0; n < squares * squares; ++n) {
    for (std::int64_t c = 0; c < input.width; ++c) {
      double sum = 0;
      double sizes = 0;
      for (std::int64_t a = 0; a < input.k; ++a) {
        for (std::int64_t b = 0; b < input.k; ++b) {
          const std::int64_t row = (n / squares * input.k + a) * input.side + n % squares * input.k + b;
          const double value = x[static_cast<std::size_t>(row * input.width + c)];
          sum += value;
          sizes += std::abs(value);
        }
      }
      const auto count = static_cast<double>(input.k * input.k);
      expected.push_back(sum / count);
      // Each of k^2 additions rounds a partial sum that is no larger than all sizes.
      limits.push_back(kEps * sizes + (2 * kEps + testing.rounding()) * std::abs(sum / count));
    }
  }
  const Shape shape{squares * squares, input.width};
  const DeviceTensor out = testing.put(std::vector<float>(expected.size(), NAN), shape);
  testing.ops().pool_squares(testing.put(x, {input.side * input.side, input.width}).view, input.k, out.view,
                             testing.stream());
  CHECK(worst_share(testing.get(out.view), expected, limits) <= 1);
}

}  // namespace gemmad
