// What the comparators must fail.
#include "tests/support/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::int64_t kRows = 300;
constexpr std::int64_t kWidth = 40;
constexpr double kLimit = 1e-5;

std::vector<float> reference() {
  std::vector<float> values(kRows * kWidth);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i) * 0.7f) + 0.1f;
  return values;
}

ConstTensorView view(const std::vector<float>& values) {
  return {values.data(), DType::kF32, {kRows, kWidth}};
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

Comparison rows(const std::vector<float>& actual) {
  static const std::vector<float> expected = reference();
  return compare_rows(view(actual), view(expected), kLimit);
}

Comparison elements(const std::vector<float>& actual) {
  return compare_elements(view(actual), doubles(reference()), 1e-6, 1e-6);
}

}  // namespace

TEST_CASE("Comparators accept equal values and small errors") {
  std::vector<float> values = reference();
  CHECK(rows(values).ok);
  CHECK(elements(values).ok);
  CHECK(compare_bits(view(values), view(reference())).ok);
  for (float& value : values)
    value *= 1.0f + 5e-7f;
  CHECK(rows(values).ok);
  CHECK(rows(values).share_used > 0.01);
  CHECK(elements(values).ok);
}

TEST_CASE("Comparators fail one wrong row among many good ones") {
  std::vector<float> values = reference();
  for (std::int64_t i = 0; i < kWidth; ++i)
    values[static_cast<std::size_t>(123 * kWidth + i)] *= 1.00005f;
  const Comparison result = rows(values);
  CHECK_FALSE(result.ok);
  CHECK(result.share_used > 4);
  CHECK(result.report.find("[123, ") != std::string::npos);
  CHECK_FALSE(elements(values).ok);
}

TEST_CASE("A row may have a limit of its own, and the whole keeps its") {
  std::vector<float> one_row = reference();
  for (std::int64_t i = 0; i < kWidth; ++i)
    one_row[static_cast<std::size_t>(123 * kWidth + i)] *= 1.00005f;
  CHECK(compare_rows(view(one_row), view(reference()), kLimit, 10 * kLimit).ok);
  CHECK_FALSE(compare_rows(view(one_row), view(reference()), kLimit, 4 * kLimit).ok);
  std::vector<float> all_rows = reference();
  for (float& value : all_rows)
    value *= 1.00002f;
  CHECK_FALSE(compare_rows(view(all_rows), view(reference()), kLimit, 10 * kLimit).ok);
}

TEST_CASE("Comparators fail values that are not finite") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  std::vector<float> values = reference();
  values[777] = bad;
  CHECK_FALSE(rows(values).ok);
  CHECK(rows(values).report.find("[19, 17]") != std::string::npos);
  CHECK_FALSE(elements(values).ok);
}

TEST_CASE("Comparators fail NaN on both sides") {
  std::vector<float> values = reference();
  values[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(compare_rows(view(values), view(values), kLimit).ok);
}

TEST_CASE("Comparators fail zeros") {
  const std::vector<float> zeros(kRows * kWidth, 0.0f);
  CHECK_FALSE(rows(zeros).ok);
  CHECK_FALSE(elements(zeros).ok);
  // And values where zeros belong.
  CHECK_FALSE(compare_rows(view(reference()), view(zeros), kLimit).ok);
  CHECK(compare_rows(view(zeros), view(zeros), kLimit).ok);
}

TEST_CASE("Comparators fail a flipped sign") {
  std::vector<float> values = reference();
  for (float& value : values)
    value = -value;
  CHECK_FALSE(rows(values).ok);
  CHECK_FALSE(elements(values).ok);
}

TEST_CASE("Comparators fail swapped rows") {
  std::vector<float> values = reference();
  std::swap_ranges(values.begin() + 4 * kWidth, values.begin() + 5 * kWidth, values.begin() + 9 * kWidth);
  CHECK_FALSE(rows(values).ok);
  CHECK_FALSE(elements(values).ok);
}

TEST_CASE("Comparators fail another shape of as many elements") {
  const std::vector<float> values = reference();
  CHECK_FALSE(compare_rows({values.data(), DType::kF32, {kWidth, kRows}}, view(values), kLimit).ok);
  CHECK_FALSE(compare_bits({values.data(), DType::kF32, {kWidth, kRows}}, view(values)).ok);
  CHECK_FALSE(compare_elements({values.data(), DType::kF32, {kRows - 1, kWidth}}, doubles(values), 1, 1).ok);
}

TEST_CASE("compare_bits fails the last bit and the sign of zero") {
  std::vector<float> values = reference();
  values[9] = std::nextafter(values[9], 10.0f);
  CHECK_FALSE(compare_bits(view(values), view(reference())).ok);
  const float zero = 0.0f;
  const float minus_zero = -0.0f;
  CHECK_FALSE(compare_bits({&zero, DType::kF32, {1}}, {&minus_zero, DType::kF32, {1}}).ok);
}

}  // namespace gemmad
