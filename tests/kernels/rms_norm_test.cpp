#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

constexpr float kEpsilon = 1e-6f;

std::vector<double> reference(const std::vector<float>& x, const std::vector<float>& weight,
                              std::int64_t rows) {
  const std::size_t width = weight.size();
  std::vector<double> out;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i)
      sum += double{x[row * width + i]} * x[row * width + i];
    const double factor = 1 / std::sqrt(sum / static_cast<double>(width) + double{kEpsilon});
    for (std::size_t i = 0; i < width; ++i)
      out.push_back(x[row * width + i] * factor * (1 + double{weight[i]}));
  }
  return out;
}

// The sum of n squares in fp32 is off by n eps / 2 at most, which the root halves, and in fact by far less
// since parts are summed apart; then four roundings.
double relative_limit(std::int64_t width) {
  return (4 + std::sqrt(static_cast<double>(width))) * kEps;
}

}  // namespace

TEST_CASE("rms_norm matches double precision") {
  const std::int64_t width = GENERATE(1, 2, 31, 32, 33, 640, 997);
  const std::int64_t rows = GENERATE(1, 3, 257);
  const float size = GENERATE(1e-4f, 1.0f, 3e4f);
  CAPTURE(width, rows, size);
  OpTesting testing;
  const std::vector<float> x = testing.rounded(random_values(rows * width, 1, size));
  const std::vector<float> weight = testing.rounded(random_values(width, 2, 0.3f));
  const DeviceTensor device_x = testing.put(x, {rows, width});
  const DeviceTensor device_weight = testing.put(weight, {width});
  const DeviceTensor out = testing.empty({rows, width});

  testing.ops().rms_norm(device_x.view, device_weight.view, kEpsilon, out.view, testing.stream());
  const std::vector<float> apart = testing.get(out.view);
  const Comparison result =
      compare_elements({apart.data(), DType::kF32, {rows, width}}, reference(x, weight, rows), 1e-30,
                       relative_limit(width) + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);

  testing.ops().rms_norm(device_x.view, device_weight.view, kEpsilon, device_x.view, testing.stream());
  CHECK(testing.get(device_x.view) == apart);
}

TEST_CASE("rms_norm without a weight matches double precision") {
  const std::int64_t width = GENERATE(1, 33, 96, 997, 3840);
  const std::int64_t rows = GENERATE(1, 3, 17, 130);
  const float size = GENERATE(1e-6f, 1e-3f, 1.0f);  // at the first two eps shows
  CAPTURE(width, rows, size);
  OpTesting testing;
  const std::vector<float> x = testing.rounded(random_values(rows * width, 1, size));
  const DeviceTensor device_x = testing.put(x, {rows, width});
  const DeviceTensor out = testing.put(std::vector<float>(x.size(), NAN), {rows, width});
  testing.ops().rms_norm(device_x.view, {}, kEpsilon, out.view, testing.stream());
  const std::vector<float> apart = testing.get(out.view);
  const std::vector<float> zeros(static_cast<std::size_t>(width), 0.0f);
  const Comparison result =
      compare_elements({apart.data(), DType::kF32, {rows, width}}, reference(x, zeros, rows), 1e-30,
                       relative_limit(width) + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
  testing.ops().rms_norm(device_x.view, {}, kEpsilon, device_x.view, testing.stream());
  CHECK((testing.get(device_x.view) == apart));
}

TEST_CASE("rms_norm of a row of zeros is zero") {
  OpTesting testing;
  const DeviceTensor x = testing.put(std::vector<float>(64, 0.0f), {2, 32});
  const DeviceTensor weight = testing.put(random_values(32, 1), {32});
  testing.ops().rms_norm(x.view, weight.view, kEpsilon, x.view, testing.stream());
  CHECK(testing.get(x.view) == std::vector<float>(64, 0.0f));
}

TEST_CASE("add_norm adds the normed branch to the stream and norms the sum for the next one") {
  const std::int64_t width = GENERATE(1, 17, 72, 640, 3840, 5376);
  const std::int64_t rows = GENERATE(1, 3, 129);
  const bool in_place = GENERATE(false, true);
  const bool has_next = GENERATE(false, true);
  CAPTURE(width, rows, in_place, has_next);
  OpTesting testing;
  const std::vector<float> y = testing.rounded(random_values(rows * width, 1));
  const std::vector<float> x = testing.rounded(random_values(rows * width, 2));
  const std::vector<float> weight = testing.rounded(random_values(width, 3, 0.3f));
  const std::vector<float> next = testing.rounded(random_values(width, 4, 0.3f));
  const DeviceTensor device_y = testing.put(y, {rows, width});
  const DeviceTensor device_weight = testing.put(weight, {width});
  const DeviceTensor device_next = testing.put(next, {width});
  const DeviceTensor stream = testing.put(x, {rows, width});
  const DeviceTensor apart = testing.put(std::vector<float>(y.size(), NAN), {rows, width});
  const DeviceTensor normed = testing.put(std::vector<float>(y.size(), NAN), {rows, width});
  const TensorView sum = in_place ? stream.view : apart.view;
  testing.ops().add_norm({device_y.view, nullptr, device_weight.view, stream.view, sum, device_next.view,
                          has_next ? normed.view : TensorView{}, kEpsilon},
                         testing.stream());

  std::vector<double> expected = reference(y, weight, rows);
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max({largest, std::abs(expected[i]), std::abs(double{x[i]})});
    expected[i] += x[i];
  }
  const std::vector<float> actual = testing.get(sum);
  // The branch is rounded before the sum is.
  const Comparison result =
      compare_elements({actual.data(), DType::kF32, {rows, width}}, expected,
                       largest * (relative_limit(width) + testing.rounding()), kEps + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
  if (!in_place) CHECK(testing.get(stream.view) == x);
  if (!has_next) return;
  const std::vector<float> next_actual = testing.get(normed.view);
  const Comparison next_result =
      compare_elements({next_actual.data(), DType::kF32, {rows, width}}, reference(actual, next, rows), 1e-30,
                       relative_limit(width) + testing.rounding());
  INFO(next_result.report);
  CHECK(next_result.ok);
}

}  // namespace gemmad
