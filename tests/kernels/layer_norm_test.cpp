#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

struct Case {
  std::int64_t rows;
  std::int64_t width;
  float mean;
  float deviation;
  float eps = 1e-6f;
};

void check(const Case& input) {
  CAPTURE(input.rows, input.width, input.mean, input.deviation, input.eps);
  OpTesting testing;
  std::vector<float> x = random_values(input.rows * input.width, 1, input.deviation);
  for (float& value : x)
    value += input.mean;
  x = testing.rounded(x);
  const std::vector<float> weight = testing.rounded(random_values(input.width, 2));
  const std::vector<float> bias = testing.rounded(random_values(input.width, 3));
  const auto width = static_cast<std::size_t>(input.width);
  std::vector<double> expected;
  std::vector<double> limits;
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0;
    double variance = 0;
    double largest = 0;
    for (std::size_t i = 0; i < width; ++i) {
      mean += x[row + i] / static_cast<double>(width);
      largest = std::max(largest, std::abs(double{x[row + i]}));
    }
    for (std::size_t i = 0; i < width; ++i)
      variance += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(width);
    const double factor = 1 / std::sqrt(variance + double{input.eps});
    // The mean is off by some roundings of partial sums, which are as large as the values; they shift all of
    // the row. What that does to the variance is the shift's square. Squares summed by parts are off by
    // sqrt(D) eps at most.
    const double shift = 8 * kEps * largest * factor;
    const double relative = shift * shift + (6 + std::sqrt(static_cast<double>(width))) * kEps;
    for (std::size_t i = 0; i < width; ++i) {
      const double normed = (x[row + i] - mean) * factor * weight[i];
      expected.push_back(normed + bias[i]);
      limits.push_back(shift * std::abs(weight[i]) + relative * std::abs(normed) +
                       (2 * kEps + testing.rounding()) * std::abs(expected.back()));
    }
  }
  const Shape shape{input.rows, input.width};
  const DeviceTensor device_x = testing.put(x, shape);
  const DeviceTensor device_weight = testing.put(weight, {input.width});
  const DeviceTensor device_bias = testing.put(bias, {input.width});
  const DeviceTensor out = testing.put(std::vector<float>(x.size(), NAN), shape);
  testing.ops().layer_norm(device_x.view, device_weight.view, device_bias.view, input.eps, out.view,
                           testing.stream());
  const std::vector<float> apart = testing.get(out.view);
  CHECK(worst_share(apart, expected, limits) <= 1);
  CHECK((testing.get(device_x.view) == x));

  testing.ops().layer_norm(device_x.view, device_weight.view, device_bias.view, input.eps, device_x.view,
                           testing.stream());
  CHECK((testing.get(device_x.view) == apart));
}

}  // namespace

TEST_CASE("layer_norm matches double precision") {
  const std::int64_t width = GENERATE(1, 2, 31, 48, 72, 997, 1152);
  const std::int64_t rows = GENERATE(1, 3, 130);
  const float deviation = GENERATE(1e-4f, 1.0f, 1e3f);  // at the first eps shows
  check({rows, width, 0, deviation});
}

TEST_CASE("layer_norm loses no small variance to a large mean") {
  const std::int64_t width = GENERATE(48, 72, 1152);
  check({5, width, 1000.0f, 10.0f});
  check({5, width, -300.0f, 2.0f});
  check({5, width, 100.0f, 0.5f});
}

TEST_CASE("layer_norm of equal values is the bias") {
  check({3, 72, 5.0f, 0});
}

TEST_CASE("layer_norm of no rows does nothing") {
  check({0, 72, 0, 1});
}

}  // namespace gemmad
