// What the operations refuse, before any work.
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const OpError& error) {
    return error.what();
  }
  return "accepted";
}

bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Operations name the argument whose shape is wrong, what it is and what it must be") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const DeviceTensor x = testing.empty({3, 8});
  const DeviceTensor w = testing.empty({5, 7});
  const DeviceTensor y = testing.empty({3, 5});
  const std::string text = refusal([&] { ops.gemm(x.view, w.view, y.view, testing.stream()); });
  INFO(text);
  CHECK(mentions(text, "gemm: w"));
  CHECK(mentions(text, "[5, 7]"));
  CHECK(mentions(text, "[5, 8]"));
}

TEST_CASE("Operations refuse a wrong type") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const DeviceTensor x = testing.empty({3, 8}, DType::kBF16);
  const DeviceTensor weight = testing.empty({8});
  const DeviceTensor out = testing.empty({3, 8});
  CHECK(mentions(refusal([&] { ops.rms_norm(x.view, weight.view, 1e-6f, out.view, testing.stream()); }),
                 "BF16"));
  const DeviceTensor ids = testing.empty({3});
  CHECK(mentions(refusal([&] { ops.embed(ids.view, out.view, 1, out.view, testing.stream()); }), "ids"));
}

TEST_CASE("Operations refuse another number of extents") {
  OpTesting testing;
  const DeviceTensor x = testing.empty({2, 2, 2});
  CHECK_THROWS_AS(testing.ops().rms_norm(x.view, x.view, 1e-6f, x.view, testing.stream()), OpError);
}

TEST_CASE("Operations refuse tensors without data") {
  OpTesting testing;
  const TensorView nothing{nullptr, DType::kF32, {2, 4}};
  const DeviceTensor out = testing.empty({2, 2});
  CHECK_THROWS_AS(testing.ops().geglu(nothing, out.view, testing.stream()), OpError);
}

TEST_CASE("Operations refuse results that overlap their inputs") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const DeviceTensor x = testing.empty({4, 4});
  CHECK(mentions(refusal([&] { ops.gemm(x.view, x.view, x.view, testing.stream()); }), "overlap"));
  const TensorView first{x.view.data, DType::kF32, {3, 4}};
  const TensorView shifted{x.view.as<float>() + 4, DType::kF32, {3, 4}};
  const DeviceTensor weight = testing.empty({4});
  CHECK(mentions(refusal([&] { ops.rms_norm(first, weight.view, 1e-6f, shifted, testing.stream()); }),
                 "overlap"));
  CHECK(mentions(refusal([&] { ops.rms_norm_add(first, weight.view, 1e-6f, first, testing.stream()); }),
                 "overlap"));
}

TEST_CASE("attention refuses bad head layouts, windows and offsets") {
  OpTesting testing;
  const DeviceTensor qkv = testing.empty({4, 24});
  const DeviceTensor out = testing.empty({4, 16});
  const auto attend = [&](HeadLayout heads, std::int64_t window, std::vector<std::int64_t> offsets) {
    return refusal([&] {
      testing.ops().attention(qkv.view, offsets, {heads, 1, window}, out.view, testing.stream());
    });
  };
  const HeadLayout good{4, 1, 4};
  CHECK(attend(good, 0, {0, 4}) == "accepted");
  CHECK(mentions(attend({3, 2, 4}, 0, {0, 4}), "num_heads"));
  CHECK(mentions(attend({4, 0, 4}, 0, {0, 4}), "num_heads"));
  CHECK(mentions(attend({4, 1, 3}, 0, {0, 4}), "head_dim"));
  CHECK(mentions(attend(good, -1, {0, 4}), "window"));
  CHECK(mentions(attend(good, 0, {0, 3}), "offsets"));
  CHECK(mentions(attend(good, 0, {1, 4}), "offsets"));
  CHECK(mentions(attend(good, 0, {}), "offsets"));
  CHECK(mentions(attend(good, 0, {0, 3, 2, 4}), "offsets"));
}

TEST_CASE("upload converts 16-bit types exactly and refuses what it cannot convert") {
  OpTesting testing;
  const std::uint16_t bf16[] = {0x3f80, 0xc049, 0x0001, 0x7f80};
  const std::uint16_t f16[] = {0x3c00, 0xc248, 0x0001, 0x7c00};
  const DeviceTensor out = testing.empty({4});
  testing.ops().upload(out.view, {bf16, DType::kBF16, {4}}, testing.stream());
  CHECK(testing.get(out.view) == std::vector<float>{1.0f, -3.140625f, 0x1p-133f, INFINITY});
  testing.ops().upload(out.view, {f16, DType::kF16, {4}}, testing.stream());
  CHECK(testing.get(out.view) == std::vector<float>{1.0f, -3.140625f, 0x1p-24f, INFINITY});
  const std::int32_t integers[4] = {};
  CHECK_THROWS_AS(testing.ops().upload(out.view, {integers, DType::kI32, {4}}, testing.stream()), OpError);
  CHECK_THROWS_AS(testing.ops().upload(out.view, {bf16, DType::kBF16, {3}}, testing.stream()), OpError);
}

TEST_CASE("upload covers every element of large tensors from any address") {
  OpTesting testing(3);
  constexpr std::int64_t kCount = 100001;
  std::vector<std::byte> bytes(kCount * 2 + 1);
  std::vector<float> expected;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<std::uint16_t>(i % 30000);
    std::memcpy(bytes.data() + 1 + i * 2, &bits, 2);
    expected.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
  const DeviceTensor out = testing.empty({kCount});
  testing.ops().upload(out.view, {bytes.data() + 1, DType::kBF16, {kCount}}, testing.stream());
  CHECK(testing.get(out.view) == expected);
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
