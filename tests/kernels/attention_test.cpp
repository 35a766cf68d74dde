#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

// Softmax over the visible keys, one query at a time, in double.
std::vector<double> reference(const std::vector<float>& qkv, const std::vector<std::int64_t>& offsets,
                              const AttentionParams& params) {
  const HeadLayout& heads = params.heads;
  const std::int64_t width = heads.head_dim;
  const std::int64_t queries = heads.num_heads / heads.num_kv_heads;
  const auto row = [&](std::int64_t n, std::int64_t column) {
    return qkv.data() + n * heads.qkv_width() + column;
  };
  std::vector<double> out(static_cast<std::size_t>(offsets.back() * heads.q_width()));
  std::vector<double> weights;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    for (std::int64_t query = offsets[b]; query < offsets[b + 1]; ++query) {
      const std::int64_t first =
          params.window == 0 ? offsets[b] : std::max(offsets[b], query - params.window + 1);
      for (std::int64_t head = 0; head < heads.num_heads; ++head) {
        const std::int64_t group = head / queries * (queries + 2) * width;
        const std::int64_t q_column = group + head % queries * width;
        double largest = -INFINITY;
        weights.clear();
        for (std::int64_t key = first; key <= query; ++key) {
          double score = 0;
          for (std::int64_t i = 0; i < width; ++i) {
            score += double{row(query, q_column)[i]} * row(key, group + queries * width)[i];
          }
          weights.push_back(score * params.scale);
          largest = std::max(largest, weights.back());
        }
        double sum = 0;
        for (double& weight : weights)
          sum += weight = std::exp(weight - largest);
        double* to = out.data() + query * heads.q_width() + head * width;
        for (std::int64_t key = first; key <= query; ++key) {
          const float* value = row(key, group + (queries + 1) * width);
          const double weight = weights[static_cast<std::size_t>(key - first)] / sum;
          for (std::int64_t i = 0; i < width; ++i)
            to[i] += weight * value[i];
        }
      }
    }
  }
  return out;
}

std::vector<std::int32_t> begins_of(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int32_t> begins;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b)
    begins.insert(begins.end(), static_cast<std::size_t>(offsets[b + 1] - offsets[b]),
                  static_cast<std::int32_t>(offsets[b]));
  return begins;
}

std::vector<float> attend(OpTesting& testing, const std::vector<float>& qkv,
                          const std::vector<std::int64_t>& offsets, const AttentionParams& params) {
  const std::int64_t rows = offsets.back();
  const DeviceTensor begins = testing.put(begins_of(offsets));
  const DeviceTensor in = testing.put(qkv, {rows, params.heads.qkv_width()});
  const DeviceTensor out = testing.empty({rows, params.heads.q_width()});
  testing.ops().attention(in.view, {begins.view, {}}, params, out.view, testing.stream());
  return testing.get(out.view);
}

// A score of size s is off by some s eps, which is the relative error of its weight; weights sum to 1 over
// values up to 5.
void check_against_reference(const std::vector<std::int64_t>& offsets, const AttentionParams& params,
                             float size, int num_threads) {
  OpTesting testing(num_threads);
  const std::int64_t rows = offsets.back();
  const std::vector<float> qkv = testing.rounded(random_values(rows * params.heads.qkv_width(), 7, size));
  const std::vector<float> actual = attend(testing, qkv, offsets, params);
  const double score_size =
      size * size * params.scale * std::sqrt(static_cast<double>(params.heads.head_dim)) * 5;
  // Weights are rounded to the compute type, and so is their sum of values.
  const double limit = ((8 + 2 * score_size) * kEps + 2 * testing.rounding()) * 5 * size;
  const Comparison result = compare_elements({actual.data(), DType::kF32, {rows, params.heads.q_width()}},
                                             reference(qkv, offsets, params), limit, 0);
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace

TEST_CASE("HeadLayout puts each kv head's queries, key and value side by side") {
  const HeadLayout heads{4, 2, 8};  // q0 q1 k0 v0 q2 q3 k1 v1
  CHECK(heads.queries_per_kv_head() == 2);
  CHECK(heads.group_width() == 32);
  CHECK(heads.qkv_width() == 64);
  CHECK(heads.q_column(0) == 0);
  CHECK(heads.q_column(1) == 8);
  CHECK(heads.k_column(0) == 16);
  CHECK(heads.v_column(0) == 24);
  CHECK(heads.q_column(2) == 32);
  CHECK(heads.q_column(3) == 40);
  CHECK(heads.k_column(1) == 48);
  CHECK(heads.v_column(1) == 56);
}

TEST_CASE("attention matches double precision at every length around its blocks") {
  const std::int64_t length = GENERATE(1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 511, 512, 513, 700);
  const std::int64_t window = GENERATE(0, 1, 16, 512);
  CAPTURE(length, window);
  check_against_reference({0, length}, {{4, 1, 64}, 0.125f, window}, 1.0f, 2);
}

TEST_CASE("attention matches double precision for every head layout") {
  const HeadLayout heads =
      GENERATE(HeadLayout{1, 1, 64}, HeadLayout{4, 4, 64}, HeadLayout{4, 2, 64}, HeadLayout{4, 1, 256},
               HeadLayout{8, 4, 128}, HeadLayout{16, 1, 64}, HeadLayout{12, 1, 64}, HeadLayout{3, 3, 128},
               HeadLayout{16, 8, 256}, HeadLayout{4, 2, 512});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, num_threads);
  check_against_reference({0, 75, 76, 140}, {heads, 0.1f, 50}, 1.0f, num_threads);
}

TEST_CASE("attention keeps packed sequences apart") {
  const std::vector<std::int64_t> offsets = {0, 1, 18, 18, 150, 151, 215};  // an empty one too
  check_against_reference(offsets, {{4, 2, 64}, 0.125f, 0}, 1.0f, 2);
  check_against_reference(offsets, {{4, 2, 64}, 0.125f, 17}, 1.0f, 2);
}

TEST_CASE("attention stands scores far apart") {
  check_against_reference({0, 600}, {{2, 1, 64}, 1.0f, 0}, 6.0f, 2);
}

TEST_CASE("attention of one kv head's group alone is that group's part of the whole") {
  OpTesting testing;
  constexpr std::int64_t kRows = 70;
  constexpr std::int64_t kGroups = 3;
  const AttentionParams one{{2, 1, 64}, 0.125f, 20};
  const AttentionParams all{{2 * kGroups, kGroups, 64}, 0.125f, 20};
  const auto columns = [](const std::vector<float>& matrix, std::int64_t group) {
    const std::int64_t stride = static_cast<std::int64_t>(matrix.size()) / kRows;
    const std::int64_t width = stride / kGroups;
    std::vector<float> part;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto begin = matrix.begin() + row * stride + group * width;
      part.insert(part.end(), begin, begin + width);
    }
    return part;
  };
  const std::vector<float> qkv = random_values(kRows * all.heads.qkv_width(), 11);
  const std::vector<float> whole = attend(testing, qkv, {0, 30, kRows}, all);
  for (std::int64_t group = 0; group < kGroups; ++group)
    CHECK(attend(testing, columns(qkv, group), {0, 30, kRows}, one) == columns(whole, group));
}

TEST_CASE("attention sees exactly `window` keys") {
  // Equal scores: the output is the mean of the visible values. Value n of key n makes the count and the
  // place visible.
  OpTesting testing;
  const HeadLayout heads{1, 1, 64};
  constexpr std::int64_t kWidth = 3 * 64;
  constexpr std::int64_t kLength = 600;
  const std::int64_t window = GENERATE(1, 2, 16, 511, 512, 513, 599, 600, 601);
  CAPTURE(window);
  std::vector<float> qkv(kLength * kWidth, 0.0f);
  for (std::int64_t n = 0; n < kLength; ++n)
    qkv[static_cast<std::size_t>(n * kWidth + 128)] = static_cast<float>(n);
  qkv = testing.rounded(std::move(qkv));
  const std::vector<float> out = attend(testing, qkv, {0, kLength}, {heads, 1.0f, window});
  for (std::int64_t n = 0; n < kLength; ++n) {
    const std::int64_t first = std::max<std::int64_t>(0, n - window + 1);
    double sum = 0;
    for (std::int64_t key = first; key <= n; ++key)
      sum += qkv[static_cast<std::size_t>(key * kWidth + 128)];
    const double mean = sum / static_cast<double>(n - first + 1);
    REQUIRE(std::abs(out[static_cast<std::size_t>(64 * n)] - mean) <=
            (1e-5 + testing.rounding()) * (mean + 1));
  }
}

TEST_CASE("attention of the same input gives the same bytes every time") {
  const AttentionParams params{{4, 1, 64}, 0.125f, 64};
  const std::vector<float> qkv = random_values(333 * params.heads.qkv_width(), 5);
  OpTesting one(1);
  OpTesting three(3);
  const std::vector<float> first = attend(three, qkv, {0, 200, 333}, params);
  for (int round = 0; round < 5; ++round)
    CHECK(attend(three, qkv, {0, 200, 333}, params) == first);
  CHECK(attend(one, qkv, {0, 200, 333}, params) == first);
}

}  // namespace gemmad
