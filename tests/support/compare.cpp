#include "tests/support/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

namespace gemmad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Comparison failure(std::string report) {
  return {false, kInfinity, std::move(report)};
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// "[2, 17]" for element `index` of `shape`.
std::string coordinate(const Shape& shape, std::int64_t index) {
  std::string text = "]";
  for (std::size_t axis = shape.rank(); axis-- > 0;) {
    text = std::to_string(index % shape[axis]) + text;
    if (axis > 0) text = ", " + text;
    index /= shape[axis];
  }
  return "[" + text;
}

std::string place(const Shape& shape, std::int64_t index, double actual, double expected) {
  return "at " + coordinate(shape, index) + ": actual " + number(actual) + ", expected " + number(expected);
}

std::int64_t worst_element(const float* actual, const float* expected, std::int64_t count) {
  std::int64_t worst = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    if (std::abs(double{actual[i]} - expected[i]) > std::abs(double{actual[worst]} - expected[worst]))
      worst = i;
  }
  return worst;
}

}  // namespace

Comparison compare_rows(ConstTensorView actual, ConstTensorView expected, double limit) {
  return compare_rows(actual, expected, limit, limit);
}

Comparison compare_rows(ConstTensorView actual, ConstTensorView expected, double limit, double row_limit) {
  if (!(actual.shape == expected.shape) || actual.dtype != DType::kF32 || expected.dtype != DType::kF32) {
    return failure("shape " + actual.shape.text() + ", expected " + expected.shape.text() + ", both F32");
  }
  const Shape& shape = actual.shape;
  const std::int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const std::int64_t num_rows = width == 0 ? 0 : shape.num_elements() / width;
  Comparison result{true, 0, "equal"};
  double all_error = 0;
  double all_norm = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float* a = actual.as<float>() + row * width;
    const float* e = expected.as<float>() + row * width;
    double error = 0;
    double norm = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(e[i])) {
        return failure("not finite " + place(shape, row * width + i, a[i], e[i]));
      }
      error += (double{a[i]} - e[i]) * (double{a[i]} - e[i]);
      norm += double{e[i]} * e[i];
    }
    all_error += error;
    all_norm += norm;
    const double share = error == 0 ? 0 : std::sqrt(error / norm) / row_limit;
    if (share > result.share_used) {
      const std::int64_t worst = worst_element(a, e, width);
      result.share_used = share;
      result.report = "row error " + number(share * row_limit) + ", " + number(share) +
                      " of the budget, worst " + place(shape, row * width + worst, a[worst], e[worst]);
    }
  }
  const double all_share = all_error == 0 ? 0 : std::sqrt(all_error / all_norm) / limit;
  if (all_share > result.share_used) {
    result.share_used = all_share;
    result.report = "error of the whole " + number(all_share * limit) + ", " + number(all_share) +
                    " of the budget; rows: " + result.report;
  }
  result.ok = result.share_used <= 1;
  return result;
}

Comparison compare_elements(ConstTensorView actual, std::span<const double> expected, double absolute,
                            double relative) {
  if (actual.dtype != DType::kF32 ||
      actual.shape.num_elements() != static_cast<std::int64_t>(expected.size())) {
    return failure("shape " + actual.shape.text() + ", expected " + std::to_string(expected.size()) +
                   " elements of F32");
  }
  Comparison result{true, 0, "equal"};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = actual.as<float>()[i];
    const double e = expected[i];
    if (!std::isfinite(a) || !std::isfinite(e)) {
      return failure("not finite " + place(actual.shape, static_cast<std::int64_t>(i), a, e));
    }
    const double budget = absolute + relative * std::abs(e);
    const double share = a == e ? 0 : std::abs(a - e) / budget;
    if (share > result.share_used) {
      result.share_used = share;
      result.report =
          number(share) + " of the budget " + place(actual.shape, static_cast<std::int64_t>(i), a, e);
    }
  }
  result.ok = result.share_used <= 1;
  return result;
}

Comparison compare_bits(ConstTensorView actual, ConstTensorView expected) {
  if (!(actual.shape == expected.shape) || actual.dtype != expected.dtype) {
    return failure("shape " + actual.shape.text() + ", expected " + expected.shape.text() +
                   " of the same type");
  }
  const auto width = static_cast<std::int64_t>(size_bytes(actual.dtype));
  for (std::int64_t i = 0; i < actual.shape.num_elements(); ++i) {
    if (std::memcmp(actual.as<std::byte>() + i * width, expected.as<std::byte>() + i * width,
                    static_cast<std::size_t>(width)) != 0) {
      return failure("bits differ at " + coordinate(actual.shape, i));
    }
  }
  return {true, 0, "equal"};
}

}  // namespace gemmad
