#include <algorithm>
#include <cmath>

#include "kernels/base/float_formats.h"
#include "kernels/rope_table.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

constexpr double kThetaLocal = 1e4;
constexpr double kThetaGlobal = 1e6;

struct CheckValue {
  double theta;
  double factor;
  std::size_t i;
  float inv;
  float position;
  float angle;
  float cos_bf16;
  float sin_bf16;
};

// Published check values of the model, head_dim 256.
constexpr CheckValue kCheckValues[] = {
    {kThetaLocal, 1, 0, 1.0f, 1000, 1000.0f, 0.5625f, 0.828125f},
    {kThetaLocal, 1, 1, 0.930572033f, 1000, 930.572021f, 0.789062f, 0.613281f},
    {kThetaLocal, 1, 64, 0.00999999978f, 1023, 10.2299995f, -0.691406f, -0.722656f},
    {kThetaGlobal, 8, 0, 0.125f, 1000, 125.0f, 0.789062f, -0.617188f},
    {kThetaGlobal, 8, 1, 0.112210892f, 1023, 114.79174f, -0.123535f, 0.992188f},
    {kThetaGlobal, 8, 64, 0.000125000006f, 1023, 0.127875f, 0.992188f, 0.12793f},
};

float rounded_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

enum class Part { kQuery, kKey, kValue };

// The heads of one row as they follow each other: for each kv head its queries, its key, its value.
std::vector<Part> parts_of_row(const HeadLayout& heads) {
  std::vector<Part> parts;
  for (std::int64_t kv_head = 0; kv_head < heads.num_kv_heads; ++kv_head) {
    parts.insert(parts.end(), static_cast<std::size_t>(heads.num_heads / heads.num_kv_heads), Part::kQuery);
    parts.insert(parts.end(), {Part::kKey, Part::kValue});
  }
  return parts;
}

std::vector<double> rotate_reference(std::vector<float> qkv, const HeadLayout& heads,
                                     const std::vector<float>& q_weight, const std::vector<float>& k_weight,
                                     double eps, const std::vector<float>& rope,
                                     const std::vector<std::int32_t>& positions) {
  std::vector<double> out(qkv.begin(), qkv.end());
  const std::int64_t half = heads.head_dim / 2;
  double* next = out.data();
  for (std::int32_t position : positions) {
    const float* angles = rope.data() + position * heads.head_dim;
    for (Part part : parts_of_row(heads)) {
      double* x = next;
      next += heads.head_dim;
      if (part == Part::kValue) continue;
      const std::vector<float>& weight = part == Part::kQuery ? q_weight : k_weight;
      double sum = 0;
      for (std::int64_t i = 0; i < heads.head_dim; ++i)
        sum += x[i] * x[i];
      const double factor = 1 / std::sqrt(sum / static_cast<double>(heads.head_dim) + eps);
      for (std::int64_t i = 0; i < heads.head_dim; ++i)
        x[i] *= factor * (1 + double{weight[static_cast<std::size_t>(i)]});
      for (std::int64_t i = 0; i < half; ++i) {
        const double a = x[i];
        const double b = x[i + half];
        x[i] = a * angles[i] - b * angles[half + i];
        x[i + half] = b * angles[i] + a * angles[half + i];
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("RoPE frequencies and angles match the model's check table") {
  for (const CheckValue& check : kCheckValues) {
    CAPTURE(check.theta, check.i);
    const std::vector<float> inverse = rope_inverse_frequencies(check.theta, check.factor, 256);
    CHECK(inverse[check.i] == check.inv);
    CHECK(check.position * inverse[check.i] == check.angle);
    const auto position = static_cast<std::size_t>(check.position);
    const std::vector<float> table = make_rope_table(check.theta, check.factor, 256, 1024);
    CHECK(std::abs(rounded_bf16(table[position * 256 + check.i]) - check.cos_bf16) < 1e-6f);
    CHECK(std::abs(rounded_bf16(table[position * 256 + 128 + check.i]) - check.sin_bf16) < 1e-6f);
  }
  CHECK(rope_inverse_frequencies(kThetaLocal, 1, 256)[127] == 0.000107460779f);
  CHECK(rope_inverse_frequencies(kThetaGlobal, 8, 256)[127] == 1.39246737e-07f);
}

TEST_CASE("RoPE table at position 0 turns nothing") {
  const std::vector<float> table = make_rope_table(kThetaLocal, 1, 64, 1);
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK(table[i] == 1.0f);
    CHECK(table[32 + i] == 0.0f);
  }
}

TEST_CASE("RoPE refuses an odd head and a theta that is not positive") {
  CHECK_THROWS_AS(rope_inverse_frequencies(kThetaLocal, 1, 63), std::invalid_argument);
  CHECK_THROWS_AS(rope_inverse_frequencies(kThetaLocal, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(rope_inverse_frequencies(0, 1, 64), std::invalid_argument);
  CHECK_THROWS_AS(make_rope_table(kThetaLocal, 0, 64, 1), std::invalid_argument);
}

TEST_CASE("norm_rope matches double precision and leaves v alone") {
  const HeadLayout heads =
      GENERATE(HeadLayout{1, 1, 64}, HeadLayout{4, 2, 64}, HeadLayout{4, 1, 256}, HeadLayout{3, 3, 128},
               HeadLayout{2, 2, 512}, HeadLayout{6, 3, 32}, HeadLayout{2, 1, 2});
  const std::int64_t rows = GENERATE(1, 61);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, rows);
  OpTesting testing;
  constexpr float kEpsilon = 1e-6f;
  const std::vector<float> qkv = testing.rounded(random_values(rows * heads.qkv_width(), 1));
  const std::vector<float> q_weight = testing.rounded(random_values(heads.head_dim, 2, 0.3f));
  const std::vector<float> k_weight = testing.rounded(random_values(heads.head_dim, 3, 0.3f));
  const std::vector<float> rope = testing.rounded(make_rope_table(kThetaLocal, 1, heads.head_dim, 1024));
  std::vector<std::int32_t> positions;
  for (std::int64_t n = 0; n < rows; ++n)
    positions.push_back(static_cast<std::int32_t>(n * 463 % 1024));

  const DeviceTensor device = testing.put(qkv, {rows, heads.qkv_width()});
  testing.ops().norm_rope(device.view, heads, testing.put(q_weight, {heads.head_dim}).view,
                          testing.put(k_weight, {heads.head_dim}).view, kEpsilon,
                          testing.put(rope, {1024, heads.head_dim}).view, testing.put(positions).view,
                          testing.stream());
  const std::vector<float> actual = testing.get(device.view);
  // Two products of values up to about 7, a sum; the norm's own error is below 8 eps here. In bf16 the norm,
  // both products and the sum are rounded.
  const Comparison result =
      compare_elements({actual.data(), DType::kF32, {rows, heads.qkv_width()}},
                       rotate_reference(qkv, heads, q_weight, k_weight, kEpsilon, rope, positions),
                       60 * kEps + 20 * testing.rounding(), 12 * kEps + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
  auto at = actual.begin();
  for (std::int64_t n = 0; n < rows; ++n) {
    for (Part part : parts_of_row(heads)) {
      if (part == Part::kValue)
        CHECK(std::equal(at, at + heads.head_dim, qkv.begin() + (at - actual.begin())));
      at += heads.head_dim;
    }
  }
}

}  // namespace gemmad
