#include "daemon/model/ltx/connector_rope.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <stdexcept>
#include <string>

namespace gemmad {
namespace {

constexpr double kTheta = 10000;

/// numpy's linspace, in fp64.
float double_frequency(std::int64_t i, std::int64_t count) {
  const double exponent =
      i == count - 1 ? 1.0 : static_cast<double>(i) * (1.0 / static_cast<double>(count - 1));
  return static_cast<float>(std::pow(kTheta, exponent) * std::numbers::pi / 2);
}

/// torch's linspace in fp32, which counts the upper half from the end with one rounding, then a power that is
/// rounded correctly.
float float_frequency(std::int64_t i, std::int64_t count) {
  const float step = 1.0f / static_cast<float>(count - 1);
  const float exponent =
      i < count / 2 ? step * static_cast<float>(i) : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f);
  const auto power = static_cast<float>(std::pow(kTheta, static_cast<double>(exponent)));
  return power * std::numbers::pi_v<float> / 2;
}

}  // namespace

std::vector<float> connector_frequencies(std::int64_t width, bool has_double_grid) {
  if (width < 4 || width % 2 != 0) {
    throw std::invalid_argument("connector RoPE: width is " + std::to_string(width) +
                                ", must be even and at least 4");
  }
  std::vector<float> frequencies;
  const std::int64_t count = width / 2;
  for (std::int64_t i = 0; i < count; ++i)
    frequencies.push_back(has_double_grid ? double_frequency(i, count) : float_frequency(i, count));
  return frequencies;
}

std::vector<float> make_connector_rope(std::int64_t width, bool has_double_grid, std::int64_t max_pos,
                                       std::int64_t sequence_length) {
  const std::vector<float> frequencies = connector_frequencies(width, has_double_grid);
  if (max_pos < 1 || sequence_length < 1)
    throw std::invalid_argument("connector RoPE: max_pos and sequence_length must be positive");
  const auto half = static_cast<std::size_t>(width / 2);
  std::vector<float> table(static_cast<std::size_t>(sequence_length) * 2 * half);
  for (std::int64_t p = 0; p < sequence_length; ++p) {
    const float time = 2 * (static_cast<float>(p) / static_cast<float>(max_pos)) - 1;
    float* const row = table.data() + static_cast<std::size_t>(p) * 2 * half;
    for (std::size_t i = 0; i < half; ++i) {
      const float product = frequencies[i] * time;
      const auto angle = static_cast<double>(product);
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace gemmad
