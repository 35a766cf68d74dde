#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr float kEpsilon = 1e-6f;

// C/2 cosines and C/2 sines a position, of angles that have nothing to do with each other.
std::vector<float> random_rope(std::int64_t num_positions, std::int64_t width) {
  const std::vector<float> angles = random_values(num_positions * width / 2, 9, 3.0f);
  std::vector<float> rope;
  for (std::int64_t p = 0; p < num_positions; ++p) {
    const auto begin = angles.begin() + p * width / 2;
    for (auto angle = begin; angle != begin + width / 2; ++angle)
      rope.push_back(std::cos(*angle));
    for (auto angle = begin; angle != begin + width / 2; ++angle)
      rope.push_back(std::sin(*angle));
  }
  return rope;
}

struct Expected {
  std::vector<double> values;
  std::vector<double> limits;  // 0 where nothing may change
};

// The queries or the keys of one row, `first` of the head 0 and a group from head to head.
void turn(const HeadLayout& heads, const std::vector<float>& weight, const float* angles, RopePairs pairs,
          double rounding, std::size_t first, Expected& expected) {
  const auto width = static_cast<std::size_t>(heads.q_width());
  const auto head_dim = static_cast<std::size_t>(heads.head_dim);
  const auto column = [&](std::size_t channel) {
    return first + channel / head_dim * 3 * head_dim + channel % head_dim;
  };
  double sum = 0;
  for (std::size_t c = 0; c < width; ++c)
    sum += expected.values[column(c)] * expected.values[column(c)];
  const double factor = 1 / std::sqrt(sum / static_cast<double>(width) + double{kEpsilon});
  // The norm's own error; then, in bf16, what is rounded.
  const double each = (8 + std::sqrt(static_cast<double>(width))) * kEps + 2 * rounding;
  for (std::size_t i = 0; i < width / 2; ++i) {
    const bool halves = pairs == RopePairs::kHalves;
    const std::size_t low = halves ? i / (head_dim / 2) * head_dim + i % (head_dim / 2) : 2 * i;
    const std::size_t high = halves ? low + head_dim / 2 : low + 1;
    const double a = expected.values[column(low)] * factor * weight[low];
    const double b = expected.values[column(high)] * factor * weight[high];
    const double cosine = angles[i];
    const double sine = angles[width / 2 + i];
    const auto put = [&](std::size_t channel, double straight, double crossed) {
      const double value = straight + crossed;
      expected.values[column(channel)] = value;
      expected.limits[column(channel)] =
          each * (std::abs(straight) + std::abs(crossed)) + (kEps + rounding) * std::abs(value);
    };
    put(low, a * cosine, -b * sine);
    put(high, b * cosine, a * sine);
  }
}

}  // namespace

TEST_CASE("norm_rope_across matches double precision and leaves v alone") {
  const HeadLayout heads =
      GENERATE(HeadLayout{1, 1, 2}, HeadLayout{3, 3, 32}, HeadLayout{2, 2, 6}, HeadLayout{5, 5, 64},
               HeadLayout{1, 1, 256}, HeadLayout{30, 30, 128}, HeadLayout{32, 32, 64});
  const std::int64_t rows = GENERATE(1, 3, 17, 130);
  const float size = GENERATE(1e-3f, 1.0f);  // at the first eps shows
  const RopePairs pairs = GENERATE(RopePairs::kHalves, RopePairs::kNeighbours);
  CAPTURE(heads.num_heads, heads.head_dim, rows, size, pairs == RopePairs::kHalves);
  OpTesting testing;
  const std::int64_t num_positions = rows == 3 ? 8 : 13;  // fewer than rows: they begin again
  const std::int64_t width = heads.q_width();
  const std::vector<float> qkv = testing.rounded(random_values(rows * heads.qkv_width(), 1, size));
  const std::vector<float> q_weight = testing.rounded(random_values(width, 2));
  const std::vector<float> k_weight = testing.rounded(random_values(width, 3));
  const std::vector<float> rope = testing.rounded(random_rope(num_positions, width));
  const DeviceTensor device = testing.put(qkv, {rows, heads.qkv_width()});
  testing.ops().norm_rope_across(device.view, heads, testing.put(q_weight, {width}).view,
                                 testing.put(k_weight, {width}).view, kEpsilon,
                                 testing.put(rope, {num_positions, width}).view, pairs, testing.stream());

  Expected expected{{qkv.begin(), qkv.end()}, std::vector<double>(qkv.size(), 0.0)};
  for (std::int64_t n = 0; n < rows; ++n) {
    const auto row = static_cast<std::size_t>(n * heads.qkv_width());
    const float* angles = rope.data() + n % num_positions * width;
    turn(heads, q_weight, angles, pairs, testing.rounding(), row, expected);
    turn(heads, k_weight, angles, pairs, testing.rounding(), row + static_cast<std::size_t>(heads.head_dim),
         expected);
  }
  CHECK(worst_share(testing.get(device.view), expected.values, expected.limits) <= 1);
}

TEST_CASE("norm_rope_across of zeros is zero") {
  OpTesting testing;
  const HeadLayout heads{2, 2, 32};
  const std::vector<float> zeros(static_cast<std::size_t>(3 * heads.qkv_width()), 0.0f);
  const DeviceTensor qkv = testing.put(zeros, {3, heads.qkv_width()});
  const DeviceTensor weight = testing.put(random_values(64, 1), {64});
  const DeviceTensor rope = testing.put(random_rope(3, 64), {3, 64});
  testing.ops().norm_rope_across(qkv.view, heads, weight.view, weight.view, kEpsilon, rope.view,
                                 RopePairs::kHalves, testing.stream());
  CHECK(testing.get(qkv.view) == zeros);
}

}  // namespace gemmad
