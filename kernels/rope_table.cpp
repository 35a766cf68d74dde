#include "kernels/rope_table.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace gemmad {

std::vector<float> rope_inverse_frequencies(double theta, double factor, std::int64_t head_dim) {
  if (head_dim <= 0 || head_dim % 2 != 0) {
    throw std::invalid_argument("RoPE: head_dim is " + std::to_string(head_dim) +
                                ", must be positive and even");
  }
  if (!(theta > 0) || !(factor > 0)) throw std::invalid_argument("RoPE: theta and factor must be positive");
  std::vector<float> inverse(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    inverse[i] = 1.0f / power / static_cast<float>(factor);
  }
  return inverse;
}

std::vector<float> make_rope_table(double theta, double factor, std::int64_t head_dim,
                                   std::int64_t num_positions) {
  const std::vector<float> inverse = rope_inverse_frequencies(theta, factor, head_dim);
  if (num_positions < 0) throw std::invalid_argument("RoPE: num_positions is negative");
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(num_positions * head_dim));
  for (std::int64_t position = 0; position < num_positions; ++position) {
    const auto angle = [&](float inv) { return static_cast<double>(static_cast<float>(position) * inv); };
    for (float inv : inverse)
      table.push_back(static_cast<float>(std::cos(angle(inv))));
    for (float inv : inverse)
      table.push_back(static_cast<float>(std::sin(angle(inv))));
  }
  return table;
}

}  // namespace gemmad
