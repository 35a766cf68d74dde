// Rows picked, normed, filled up and shifted on the way from hidden states to embeddings.
#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

constexpr float kEpsilon = 1e-6f;

// `count` of `num_rows` rows in no order, some of them twice where there are few.
std::vector<std::int32_t> some_rows(std::int64_t count, std::int64_t num_rows) {
  std::vector<std::int32_t> rows;
  for (std::int64_t m = 0; m < count; ++m)
    rows.push_back(static_cast<std::int32_t>((m * 7 + 3) % num_rows));
  return rows;
}

// Rows that are not asked for are NaN, so that nothing of them gets into a result unseen.
std::vector<float> rows_of(std::int64_t num_rows, std::int64_t width, const std::vector<std::int32_t>& rows,
                           float size, float offset) {
  std::vector<float> x = random_values(num_rows * width, 1, size);
  for (std::int64_t n = 0; n < num_rows; ++n) {
    const bool asked = std::find(rows.begin(), rows.end(), n) != rows.end();
    for (std::int64_t i = 0; i < width; ++i) {
      float& value = x[static_cast<std::size_t>(n * width + i)];
      value = asked ? value + offset : NAN;
    }
  }
  return x;
}

struct Expected {
  std::vector<double> values;
  std::vector<double> limits;
};

// Of the sequence of rows that `rows` lists from first to last, behind what is there already.
void expect_range(const std::vector<float>& x, const std::vector<std::int32_t>& rows, std::size_t first,
                  std::size_t last, std::int64_t width, double rounding, Expected& expected) {
  std::vector<double> values;
  for (std::size_t m = first; m < last; ++m) {
    const auto begin = x.begin() + rows[m] * width;
    values.insert(values.end(), begin, begin + width);
  }
  if (values.empty()) return;
  double sum = 0;
  double size = 0;
  for (double value : values) {
    sum += value;
    size += std::abs(value);
  }
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  const double range = *max - *min + double{kEpsilon};
  // The sum in fp32 by parts; in bf16 it is rounded, and the range is twice.
  const double shift = 8 / range * (64 * kEps * size / count + rounding * std::abs(mean));
  for (double value : values) {
    expected.values.push_back(8 * (value - mean) / range);
    expected.limits.push_back(shift + (8 * kEps + 3.1 * rounding) * std::abs(expected.values.back()));
  }
}

std::vector<float> range_rows(OpTesting& testing, const std::vector<float>& x, std::int64_t width,
                              const std::vector<std::int32_t>& rows,
                              const std::vector<std::int32_t>& bounds) {
  const auto num_sequences = static_cast<std::int64_t>(bounds.size()) - 1;
  const Shape scratch{num_sequences, Ops::kRangeScratch};
  const DeviceTensor between = testing.put(
      std::vector<float>(static_cast<std::size_t>(scratch.num_elements()), NAN), scratch, DType::kF32);
  const DeviceTensor out = testing.empty({static_cast<std::int64_t>(rows.size()), width});
  testing.ops().range_rows(testing.put(x, {static_cast<std::int64_t>(x.size()) / width, width}).view,
                           testing.put(rows).view, testing.put(bounds).view, kEpsilon, between.view, out.view,
                           testing.stream());
  return testing.get(out.view);
}

}  // namespace

TEST_CASE("rms_rows matches double precision on the rows that it is asked for") {
  const std::int64_t count = GENERATE(1, 3, 17, 130);
  const std::int64_t width = GENERATE(1, 7, 96, 997, 3840);
  const float size = GENERATE(1e-6f, 1e-3f, 1.0f, 300.0f);  // at the first two eps shows
  CAPTURE(count, width, size);
  constexpr float kFactor = 1.0327955f;
  const std::int64_t num_rows = count + 5;
  OpTesting testing;
  const std::vector<std::int32_t> rows = some_rows(count, num_rows);
  const std::vector<float> x = testing.rounded(rows_of(num_rows, width, rows, size, 0));
  const DeviceTensor out =
      testing.put(std::vector<float>(static_cast<std::size_t>(count * width), NAN), {count, width});
  testing.ops().rms_rows(testing.put(x, {num_rows, width}).view, testing.put(rows).view, kFactor, kEpsilon,
                         out.view, testing.stream());
  std::vector<double> expected;
  for (std::int32_t row : rows) {
    const float* from = x.data() + row * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i)
      sum += double{from[i]} * from[i];
    const double root = std::sqrt(sum / static_cast<double>(width) + double{kEpsilon});
    for (std::int64_t i = 0; i < width; ++i)
      expected.push_back(kFactor * from[i] / root);
  }
  const std::vector<float> actual = testing.get(out.view);
  // In bf16 three roundings before the root, which halves them, and three behind it.
  const Comparison result =
      compare_elements({actual.data(), DType::kF32, {count, width}}, expected, 1e-30,
                       (6 + std::sqrt(static_cast<double>(width))) * kEps + 4.6 * testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("range_rows matches double precision, each sequence by itself") {
  const std::int64_t width = GENERATE(1, 7, 96, 997, 3840);
  const float size = GENERATE(1e-6f, 1e-3f, 1.0f, 300.0f);  // at the first eps shows
  const int num_threads = GENERATE(1, 3);
  CAPTURE(width, size, num_threads);
  OpTesting testing(num_threads);
  const std::vector<std::int32_t> bounds = {0, 1, 4, 4, 21, 151, 153};
  const std::int64_t count = bounds.back();
  const std::vector<std::int32_t> rows = some_rows(count, count + 6);
  std::vector<float> x = rows_of(count + 6, width, rows, size, size / 4);
  // Sequences of other sizes beside each other, and an extreme in the last row of one.
  for (std::size_t m = 4; m < 21; ++m) {
    for (std::int64_t i = 0; i < width; ++i)
      x[static_cast<std::size_t>(rows[m] * width + i)] *= m == 20 && i == width - 1 ? 24.0f : 8.0f;
  }
  x = testing.rounded(std::move(x));
  Expected expected;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    expect_range(x, rows, static_cast<std::size_t>(bounds[b]), static_cast<std::size_t>(bounds[b + 1]), width,
                 testing.rounding(), expected);
  }
  CHECK(worst_share(range_rows(testing, x, width, rows, bounds), expected.values, expected.limits) <= 1);
}

TEST_CASE("range_rows of equal values is zero") {
  OpTesting testing;
  const std::int64_t width = GENERATE(1, 96, 3840);
  const std::vector<float> x(static_cast<std::size_t>(3 * width), 0.5f);
  CHECK((range_rows(testing, x, width, {0, 1, 2}, {0, 3}) == std::vector<float>(x.size(), 0.0f)));
}

TEST_CASE("range_rows of a sequence is the same bytes every time, with any number of threads") {
  constexpr std::int64_t kWidth = 3840;
  OpTesting one(1);
  OpTesting three(3);
  const std::vector<float> x = random_values(100 * kWidth, 5);
  const std::vector<std::int32_t> rows = some_rows(100, 100);
  const std::vector<float> first = range_rows(three, x, kWidth, rows, {0, 30, 100});
  CHECK((range_rows(three, x, kWidth, rows, {0, 30, 100}) == first));
  CHECK((range_rows(one, x, kWidth, rows, {0, 30, 100}) == first));
}

TEST_CASE("fill_registers puts features first and the registers of their places behind") {
  struct Sizes {
    std::int64_t length, registers, width;
  };
  const Sizes sizes =
      GENERATE(Sizes{1, 1, 1}, Sizes{9, 4, 7}, Sizes{128, 128, 96}, Sizes{300, 128, 33}, Sizes{8, 20, 3840});
  CAPTURE(sizes.length, sizes.registers, sizes.width);
  OpTesting testing;
  std::vector<std::int32_t> bounds = {0};
  for (std::int64_t count :
       {sizes.length, std::int64_t{0}, (sizes.length + 1) / 2, sizes.length - 1, std::int64_t{1}})
    bounds.push_back(bounds.back() + static_cast<std::int32_t>(count));
  const std::int64_t num_sequences = static_cast<std::int64_t>(bounds.size()) - 1;
  const std::vector<float> features = testing.rounded(random_values(bounds.back() * sizes.width, 1));
  const std::vector<float> registers = testing.rounded(random_values(sizes.registers * sizes.width, 2));
  const Shape shape{num_sequences * sizes.length, sizes.width};
  const DeviceTensor out =
      testing.put(std::vector<float>(static_cast<std::size_t>(shape.num_elements()), NAN), shape);
  testing.ops().fill_registers(
      testing.put(features, {bounds.back(), sizes.width}).view, testing.put(bounds).view,
      testing.put(registers, {sizes.registers, sizes.width}).view, out.view, testing.stream());
  std::vector<float> expected;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    for (std::int64_t place = 0; place < sizes.length; ++place) {
      const bool is_feature = place < bounds[b + 1] - bounds[b];
      const auto from = is_feature ? features.begin() + (bounds[b] + place) * sizes.width
                                   : registers.begin() + place % sizes.registers * sizes.width;
      expected.insert(expected.end(), from, from + sizes.width);
    }
  }
  CHECK((testing.get(out.view) == expected));
}

TEST_CASE("add_bias rounds the sum once, or the sums alone") {
  const std::int64_t rows = GENERATE(1, 3, 17, 130);
  const std::int64_t width = GENERATE(1, 7, 96, 3840);
  const bool has_bias = GENERATE(false, true);
  CAPTURE(rows, width, has_bias);
  OpTesting testing;
  const std::vector<float> sums = random_values(rows * width, 1);
  const std::vector<float> bias = testing.rounded(random_values(width, 2));
  const DeviceTensor device_bias = testing.put(bias, {width});
  const DeviceTensor out = testing.put(std::vector<float>(sums.size(), NAN), {rows, width});
  testing.ops().add_bias(testing.put(sums, {rows, width}, DType::kF32).view,
                         has_bias ? device_bias.view : TensorView{}, out.view, testing.stream());
  std::vector<float> expected = sums;
  for (std::size_t i = 0; has_bias && i < expected.size(); ++i)
    expected[i] += bias[i % bias.size()];
  CHECK((testing.get(out.view) == testing.rounded(std::move(expected))));
}

}  // namespace gemmad
