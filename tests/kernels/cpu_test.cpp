// What only the CPU's operations do: they look at what others must trust.
#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/base/peer_addends.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/rope_table.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::int64_t kVocabulary = 53;

bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("exp_clamped is within an ulp of exp over its whole range") {
  double worst_ulp = 0;
  for (int i = -870000; i <= 880000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    const double expected = std::exp(double{x});
    const auto rounded = static_cast<float>(expected);
    const double ulp = std::nextafter(rounded, INFINITY) - double{rounded};
    worst_ulp = std::max(worst_ulp, std::abs(cpu::exp_clamped(x) - expected) / ulp);
  }
  CHECK(worst_ulp <= 1.1);  // fused or not, the steps round differently
}

TEST_CASE("exp_clamped stays finite and positive outside its range") {
  CHECK(cpu::exp_clamped(-1e30f) == cpu::exp_clamped(-87.0f));
  CHECK(cpu::exp_clamped(1e30f) == cpu::exp_clamped(88.0f));
  CHECK(cpu::exp_clamped(-INFINITY) > 0);
  CHECK(std::isfinite(cpu::exp_clamped(INFINITY)));
  CHECK(cpu::exp_clamped(0.0f) == 1.0f);
}

TEST_CASE("embed refuses an id outside the table") {
  OpTesting testing;
  const DeviceTensor table = testing.put(random_values(kVocabulary * 4, 1), {kVocabulary, 4});
  const DeviceTensor out = testing.empty({2, 4});
  const std::int32_t bad = GENERATE(-1, static_cast<std::int32_t>(kVocabulary));
  CHECK_THROWS_AS(testing.ops().embed(testing.put(std::vector<std::int32_t>{0, bad}).view, table.view, 1,
                                      out.view, testing.stream()),
                  OpError);
}

TEST_CASE("norm_rope refuses a position outside the table") {
  OpTesting testing;
  const HeadLayout heads{1, 1, 4};
  const DeviceTensor qkv = testing.put(random_values(12, 1), {1, 12});
  const DeviceTensor weight = testing.put(random_values(4, 2), {4});
  const DeviceTensor rope = testing.put(make_rope_table(1e4, 1, 4, 8), {8, 4});
  const std::int32_t bad = GENERATE(-1, 8);
  CHECK_THROWS_AS(testing.ops().norm_rope(qkv.view, heads, weight.view, weight.view, 1e-6f, rope.view,
                                          testing.put(std::vector<std::int32_t>{bad}).view, testing.stream()),
                  OpError);
}

TEST_CASE("attention on the CPU refuses begins that do not begin sequences") {
  OpTesting testing;
  const DeviceTensor qkv = testing.put(random_values(4 * 12, 1), {4, 12});
  const DeviceTensor out = testing.empty({4, 4});
  const std::vector<std::int32_t> bad =
      GENERATE(std::vector<std::int32_t>{1, 1, 1, 1}, std::vector<std::int32_t>{0, 0, 3, 3},
               std::vector<std::int32_t>{0, 1, 0, 1}, std::vector<std::int32_t>{0, 0, 0, -1});
  CHECK_THROWS_AS(testing.ops().attention(qkv.view, {testing.put(bad).view, {}}, {{1, 1, 4}, 1, 0}, out.view,
                                          testing.stream()),
                  OpError);
}

TEST_CASE("attention on the CPU refuses ends before their rows, behind their sequences and that fall") {
  OpTesting testing;
  const DeviceTensor qkv = testing.put(random_values(5 * 12, 1), {5, 12});
  const DeviceTensor out = testing.empty({5, 4});
  const DeviceTensor begins = testing.put({0, 0, 0, 3, 3});
  const auto attend = [&](const std::vector<std::int32_t>& ends) {
    testing.ops().attention(qkv.view, {begins.view, testing.put(ends).view}, {{1, 1, 4}, 1, 0}, out.view,
                            testing.stream());
  };
  attend({1, 3, 3, 5, 5});
  CHECK_THROWS_WITH(attend({0, 3, 3, 5, 5}), "attention: ends[0] is 0, must be in [1, 3]");
  CHECK_THROWS_WITH(attend({1, 3, 4, 5, 5}), "attention: ends[2] is 4, must be in [3, 3]");
  CHECK_THROWS_WITH(attend({3, 2, 3, 5, 5}), "attention: ends[1] is 2, must be in [3, 3]");
  CHECK_THROWS_WITH(attend({3, 3, 3, 5, 6}), "attention: ends[4] is 6, must be in [5, 5]");
  CHECK_THROWS_AS(attend({3, 3, 3, 5, -1}), OpError);
}

TEST_CASE("rms_rows and range_rows on the CPU refuse rows outside x") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(12, 1), {3, 4});
  const DeviceTensor out = testing.empty({2, 4});
  const DeviceTensor scratch = testing.empty({1, Ops::kRangeScratch});
  const std::int32_t bad = GENERATE(-1, 3);
  const DeviceTensor rows = testing.put({2, bad});
  CHECK_THROWS_WITH(testing.ops().rms_rows(x.view, rows.view, 1, 1e-6f, out.view, testing.stream()),
                    "rms_rows: rows[1] is " + std::to_string(bad) + ", must be in [0, 3)");
  CHECK_THROWS_WITH(testing.ops().range_rows(x.view, rows.view, testing.put({0, 2}).view, 1e-6f, scratch.view,
                                             out.view, testing.stream()),
                    "range_rows: rows[1] is " + std::to_string(bad) + ", must be in [0, 3)");
}

TEST_CASE("range_rows and fill_registers on the CPU refuse bounds that do not rise to the number of rows") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(24, 1), {6, 4});
  const DeviceTensor normed = testing.empty({6, 4});
  const DeviceTensor filled = testing.empty({8, 4});
  const DeviceTensor scratch = testing.empty({2, Ops::kRangeScratch});
  const DeviceTensor rows = testing.put({0, 1, 2, 3, 4, 5});
  const auto range = [&](const std::vector<std::int32_t>& bounds) {
    testing.ops().range_rows(x.view, rows.view, testing.put(bounds).view, 1e-6f, scratch.view, normed.view,
                             testing.stream());
  };
  const auto fill = [&](const std::vector<std::int32_t>& bounds) {
    testing.ops().fill_registers(x.view, testing.put(bounds).view, x.view, filled.view, testing.stream());
  };
  range({0, 6, 6});
  fill({0, 4, 6});
  const std::vector<std::int32_t> bad =
      GENERATE(std::vector<std::int32_t>{1, 3, 6}, std::vector<std::int32_t>{-1, 3, 6},
               std::vector<std::int32_t>{0, 3, 5}, std::vector<std::int32_t>{0, 3, 7},
               std::vector<std::int32_t>{0, 7, 6}, std::vector<std::int32_t>{0, -1, 6});
  CHECK_THROWS_AS(range(bad), OpError);
  CHECK_THROWS_AS(fill(bad), OpError);
  CHECK_THROWS_WITH(fill({0, 5, 6}),
                    "fill_registers: bounds[1] is 5, where they must rise from 0 to 6 by at most 4");
}

TEST_CASE("linear and gemm_sums on the CPU over no inputs leave what is added") {
  OpTesting testing;
  const DeviceTensor x = testing.empty({2, 0});
  const DeviceTensor w = testing.empty({3, 0});
  const DeviceTensor bias = testing.put({1, 2, 3}, {3});
  const DeviceTensor y = testing.put({10, 20, 30, 40, 50, 60}, {2, 3});
  Ops& ops = testing.ops();
  ops.linear({x.view, w.view, bias.view, Activation::kNone, y.view, y.view}, testing.stream());
  CHECK(testing.get(y.view) == std::vector<float>{11, 22, 33, 41, 52, 63});
  ops.gemm_sums(x.view, w.view, true, y.view, testing.stream());
  CHECK(testing.get(y.view) == std::vector<float>{11, 22, 33, 41, 52, 63});
  ops.gemm_sums(x.view, w.view, false, y.view, testing.stream());
  CHECK(testing.get(y.view) == std::vector<float>(6, 0.0f));
}

TEST_CASE("attention on the CPU gives the same bytes whatever the neighbours and the number of threads") {
  const AttentionParams params{{4, 1, 64}, 0.125f, 100};
  const std::int64_t width = params.heads.qkv_width();
  const std::vector<float> qkv = random_values(150 * width, 3);
  const auto attend = [&](OpTesting& testing, std::int64_t first, std::int64_t last) {
    const std::vector<float> rows(qkv.begin() + first * width, qkv.begin() + last * width);
    std::vector<std::int32_t> begins;
    for (std::int64_t row = first; row < last; ++row)
      begins.push_back(
          static_cast<std::int32_t>((row < 130 ? std::max<std::int64_t>(0, first) : 130) - first));
    const DeviceTensor in = testing.put(rows, {last - first, width});
    const DeviceTensor out = testing.empty({last - first, params.heads.q_width()});
    testing.ops().attention(in.view, {testing.put(begins).view, {}}, params, out.view, testing.stream());
    return testing.get(out.view);
  };
  OpTesting one(1);
  OpTesting three(3);
  const std::vector<float> together = attend(three, 0, 150);
  const std::vector<float> alone = attend(three, 130, 150);
  CHECK(std::equal(alone.begin(), alone.end(), together.begin() + 130 * params.heads.q_width()));
  CHECK(attend(one, 0, 150) == together);
}

TEST_CASE("add_norm on the CPU refuses peers") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(8, 1), {2, 4});
  const DeviceTensor y = testing.put(random_values(8, 2), {2, 4});
  const DeviceTensor weight = testing.put(random_values(4, 3), {4});
  const PeerAddends peers{};
  CHECK_THROWS_AS(
      testing.ops().add_norm({y.view, &peers, weight.view, x.view, x.view, {}, {}, 1e-6f}, testing.stream()),
      OpError);
}

TEST_CASE("make_cpu_ops refuses a number of threads that makes no sense") {
  const int num_threads = GENERATE(-1, 0, 1025);
  CHECK_THROWS_AS(make_cpu_ops(num_threads), std::invalid_argument);
}

TEST_CASE("The CPU describes itself") {
  const std::string text = OpTesting(2).ops().description();
  INFO(text);
  CHECK(mentions(text, "fp32"));
  CHECK(mentions(text, "2 threads"));
}

}  // namespace gemmad
