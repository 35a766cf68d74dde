#include "daemon/model/generation/top_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "kernels/base/float_formats.h"
#include "tests/support/catch.h"

using namespace gemmad;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// What find() must leave, by its definition.
std::vector<Logit> expected(const std::vector<float>& row, std::size_t k) {
  std::vector<Logit> all;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isfinite(row[i])) all.push_back({row[i], static_cast<std::int32_t>(i)});
  }
  std::sort(all.begin(), all.end(), is_before);
  if (k == 0 || all.size() <= k) return all;
  const float least = all[k - 1].value;
  std::erase_if(all, [&](const Logit& logit) { return logit.value < least; });
  return all;
}

std::vector<Logit> find(ConstTensorView logits, std::size_t k) {
  TopLogits finder;
  std::vector<Logit> found = {{7, 7}};
  finder.find(logits, k, found);
  std::sort(found.begin(), found.end(), is_before);
  return found;
}

/// In both types; `row` is rounded to bf16 for both, so that their answers are the same.
void check_row(std::vector<float> row, std::size_t k) {
  std::vector<std::uint16_t> bf16;
  for (float& value : row) {
    bf16.push_back(f32_to_bf16(value));
    value = bf16_to_f32(bf16.back());
  }
  const Shape shape{static_cast<std::int64_t>(row.size())};
  CHECK(find({row.data(), DType::kF32, shape}, k) == expected(row, k));
  CHECK(find({bf16.data(), DType::kBF16, shape}, k) == expected(row, k));
}

}  // namespace

TEST_CASE("The largest logits are those of a sorted row, ties with the last included") {
  std::mt19937 random(3);
  std::normal_distribution<float> values(-3, 8);
  for (const std::size_t size : {1u, 2u, 255u, 256u, 257u, 512u, 5000u, 70001u}) {
    std::vector<float> row(size);
    for (float& value : row)
      value = values(random);
    for (const std::size_t k : {0u, 1u, 2u, 20u, 50u, 300u, 100000u}) {
      CAPTURE(size, k);
      check_row(row, k);
    }
  }
}

TEST_CASE("Many equal bf16 logits all tie at the k-th place") {
  std::vector<float> row(4096, 1.0f);
  for (std::size_t i = 0; i < row.size(); i += 100)
    row[i] = 2.0f + static_cast<float>(i % 3);
  for (const std::size_t k : {1u, 5u, 20u, 41u, 42u, 43u})
    check_row(row, k);
}

TEST_CASE("Logits of hostile size and sign keep their order, and those that are not finite are not found") {
  const float largest = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min() * 65536;  // bf16 has it too
  std::vector<float> row = {0.0f,   -0.0f, kNaN,   -kNaN,   kInfinity, -kInfinity,  3e38f,
                            -3e38f, least, -least, -1e-30f, 1e-30f,    -largest / 2};
  row.resize(1000, -5.0f);
  for (std::size_t k = 0; k < 14; ++k)
    check_row(row, k);
}

TEST_CASE("Zeros of both signs tie") {
  std::vector<float> row(2000, -0.0f);
  row[700] = 0.0f;
  check_row(row, 1);
  CHECK(find({row.data(), DType::kF32, Shape{2000}}, 1).size() == 2000);
}

TEST_CASE("A row without a finite logit has no largest") {
  check_row({kNaN, kInfinity, -kInfinity}, 1);
  check_row({kNaN, -kNaN}, 0);
  CHECK(find({nullptr, DType::kF32, Shape{0}}, 1).empty());
}

TEST_CASE("Logits of another type or shape are refused") {
  const std::vector<float> row(4);
  CHECK_THROWS_AS(find({row.data(), DType::kF16, Shape{4}}, 1), std::invalid_argument);
  CHECK_THROWS_AS(find({row.data(), DType::kI32, Shape{4}}, 1), std::invalid_argument);
  CHECK_THROWS_AS(find({row.data(), DType::kF32, Shape{1, 4}}, 1), std::invalid_argument);
  CHECK_THROWS_AS(find({row.data(), DType::kF32, Shape{}}, 1), std::invalid_argument);
  CHECK_THROWS_AS(find({row.data(), DType::kBF16, Shape{std::int64_t{1} << 31}}, 1), std::invalid_argument);
}
