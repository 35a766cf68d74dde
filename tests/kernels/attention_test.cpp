#include <algorithm>
#include <cmath>

#include "tests/kernels/attention_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

void check_against_reference(const std::vector<std::int64_t>& offsets, const AttentionParams& params,
                             float size, int num_threads) {
  const Comparison result = compare_attention(causal_spans(offsets), params, size, num_threads);
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
  const std::vector<float> whole = attend(testing, qkv, causal_spans({0, 30, kRows}), all);
  for (std::int64_t group = 0; group < kGroups; ++group)
    CHECK(attend(testing, columns(qkv, group), causal_spans({0, 30, kRows}), one) == columns(whole, group));
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
  const std::vector<float> out = attend(testing, qkv, causal_spans({0, kLength}), {heads, 1.0f, window});
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

TEST_CASE("attention refuses a scale that is not positive") {
  OpTesting testing;
  const float scale = GENERATE(0.0f, -1.0f, NAN);
  const AttentionParams params{{1, 1, 64}, scale, 0};
  const std::vector<float> qkv(static_cast<std::size_t>(params.heads.qkv_width()), 1.0f);
  CHECK_THROWS_AS(attend(testing, qkv, causal_spans({0, 1}), params), OpError);
}

TEST_CASE("attention of the same input gives the same bytes every time") {
  const AttentionParams params{{4, 1, 64}, 0.125f, 64};
  const std::vector<float> qkv = random_values(333 * params.heads.qkv_width(), 5);
  OpTesting one(1);
  OpTesting three(3);
  const std::vector<float> first = attend(three, qkv, causal_spans({0, 200, 333}), params);
  for (int round = 0; round < 5; ++round)
    CHECK(attend(three, qkv, causal_spans({0, 200, 333}), params) == first);
  CHECK(attend(one, qkv, causal_spans({0, 200, 333}), params) == first);
}

}  // namespace gemmad
