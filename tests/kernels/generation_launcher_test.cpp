// What the operations of generation and of images refuse, before any work.
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

TensorView part(const DeviceTensor& tensor, std::int64_t begin, const Shape& shape) {
  return {tensor.view.as<float>() + begin, DType::kF32, shape};
}

}  // namespace

TEST_CASE("store_kv and attention_cached refuse bad head layouts, caches and rows") {
  OpTesting testing;
  const HeadLayout good{4, 1, 4};
  const DeviceTensor qkv = testing.put(random_values(48, 1), {2, 24});
  const DeviceTensor out = testing.empty({2, 16});
  const DeviceTensor cache = testing.put(random_values(96, 2), {3, 4, 8});
  const DeviceTensor slots = testing.put({0, 1});
  const DeviceTensor positions = testing.put({1, 2});
  const DeviceTensor ends = testing.put({2, 3});
  const CacheRows rows{slots.view, positions.view, ends.view};
  const auto check = [&](const HeadLayout& heads, const CacheRows& at, TensorView to, const char* problem) {
    const std::string stored =
        refusal([&] { testing.ops().store_kv(qkv.view, heads, at, to, testing.stream()); });
    const std::string attended = refusal([&] {
      testing.ops().attention_cached(qkv.view, at, to, {heads, 1, 0}, out.view, testing.stream());
    });
    INFO(stored << "; " << attended);
    CHECK(mentions(stored, problem));
    CHECK(mentions(attended, problem));
  };
  check(good, rows, cache.view, "accepted");
  check({3, 2, 4}, rows, cache.view, "num_heads");
  check({4, 1, 3}, rows, cache.view, "head_dim");
  check({2, 1, 4}, rows, cache.view, "qkv has shape [2, 24], must be [2, 16]");
  check(good, rows, testing.empty({3, 32}).view, "cache has shape [3, 32], must have 3 extents");
  check(good, rows, testing.empty({3, 8, 4}).view, "cache has shape [3, 8, 4], must be [3, 8, 8]");
  check(good, rows, testing.empty({3, 0, 8}).view, "cache has shape [3, 0, 8], must have positions");
  check(good, rows, testing.empty({3, 4, 8}, DType::kBF16).view, "cache is BF16, must be F32");
  const DeviceTensor three = testing.put({0, 1, 2});
  const DeviceTensor floats = testing.empty({2});
  check(good, {three.view, positions.view, ends.view}, cache.view, "slots has shape [3], must be [2]");
  check(good, {slots.view, three.view, ends.view}, cache.view, "positions has shape [3], must be [2]");
  check(good, {slots.view, positions.view, three.view}, cache.view, "ends has shape [3], must be [2]");
  check(good, {floats.view, positions.view, ends.view}, cache.view, "slots is F32, must be I32");
  check(good, {slots.view, floats.view, ends.view}, cache.view, "positions is F32, must be I32");
  check(good, {slots.view, positions.view, floats.view}, cache.view, "ends is F32, must be I32");
  check(good, {slots.view, positions.view, {nullptr, DType::kI32, {2}}}, cache.view, "ends has no data");
}

TEST_CASE("store_kv and attention_cached refuse results among their inputs, and a negative window") {
  OpTesting testing;
  const HeadLayout heads{1, 1, 4};
  const DeviceTensor data = testing.put(random_values(128, 1), {128});
  const DeviceTensor zeros = testing.put({0, 0});
  const DeviceTensor ones = testing.put({1, 1});
  const CacheRows rows{zeros.view, zeros.view, ones.view};
  const TensorView qkv = part(data, 0, {2, 12});
  const auto store = [&](TensorView cache) {
    return refusal([&] { testing.ops().store_kv(qkv, heads, rows, cache, testing.stream()); });
  };
  CHECK(store(part(data, 24, {1, 4, 8})) == "accepted");
  CHECK(mentions(store(part(data, 23, {1, 4, 8})), "cache and qkv overlap"));
  const auto attend = [&](TensorView out, std::int64_t window) {
    return refusal([&] {
      testing.ops().attention_cached(qkv, rows, part(data, 24, {1, 4, 8}), {heads, 1, window}, out,
                                     testing.stream());
    });
  };
  CHECK(attend(part(data, 56, {2, 4}), 0) == "accepted");
  CHECK(mentions(attend(part(data, 55, {2, 4}), 0), "out and cache overlap"));
  CHECK(mentions(attend(part(data, 0, {2, 4}), 0), "out and qkv overlap"));
  CHECK(mentions(attend(part(data, 56, {4, 2}), 0), "out has shape [4, 2], must be [2, 4]"));
  CHECK(mentions(attend(part(data, 56, {2, 4}), -1), "window is -1"));
}

TEST_CASE("unembed refuses a table or a result of another shape or type, and overlaps") {
  OpTesting testing;
  const DeviceTensor data = testing.put(random_values(100, 1), {100});
  const TensorView x = part(data, 0, {2, 4});
  const TensorView table = part(data, 8, {5, 4});
  const auto unembed = [&](TensorView from, ConstTensorView with, TensorView out) {
    return refusal([&] { testing.ops().unembed(from, with, out, testing.stream()); });
  };
  const TensorView out = part(data, 28, {2, 5});
  CHECK(unembed(x, table, out) == "accepted");
  CHECK(mentions(unembed(x, part(data, 8, {4, 5}), out), "table has shape [4, 5], must be [4, 4]"));
  CHECK(mentions(unembed(x, {table.data, DType::kI32, table.shape}, out), "must be BF16, F16 or F32"));
  CHECK(mentions(unembed({x.data, DType::kBF16, x.shape}, table, out), "x is BF16"));
  CHECK(mentions(unembed(x, table, part(data, 28, {5, 2})), "out has shape [5, 2], must be [2, 5]"));
  CHECK(mentions(unembed(x, table, {out.data, DType::kBF16, out.shape}), "out is BF16"));
  CHECK(mentions(unembed(x, table, part(data, 27, {2, 5})), "out and table overlap"));
  CHECK(mentions(unembed(part(data, 30, {2, 4}), table, out), "out and x overlap"));
  CHECK(mentions(unembed(part(data, 0, {8}), table, out), "x has shape [8], must have 2 extents"));
}

TEST_CASE("copy refuses another shape or type and overlaps") {
  OpTesting testing;
  const DeviceTensor data = testing.put(random_values(20, 1), {20});
  const auto copy = [&](TensorView dst, ConstTensorView src) {
    return refusal([&] { testing.ops().copy(dst, src, testing.stream()); });
  };
  CHECK(copy(part(data, 0, {8}), part(data, 8, {8})) == "accepted");
  CHECK(mentions(copy(part(data, 0, {8}), part(data, 8, {2, 4})), "dst has shape [8], must be [2, 4]"));
  CHECK(mentions(copy({data.view.data, DType::kI32, {8}}, part(data, 8, {8})), "dst is I32, must be F32"));
  CHECK(mentions(copy(part(data, 1, {8}), part(data, 8, {8})), "dst and src overlap"));
  CHECK(mentions(copy(part(data, 8, {8}), part(data, 8, {8})), "dst and src overlap"));
  CHECK(mentions(copy({nullptr, DType::kF32, {8}}, part(data, 8, {8})), "dst has no data"));
}

TEST_CASE("layer_norm refuses weights of another width, a negative eps, and a result half over x") {
  OpTesting testing;
  const DeviceTensor data = testing.put(random_values(40, 1), {40});
  const TensorView x = part(data, 0, {2, 4});
  const TensorView weight = part(data, 20, {4});
  const auto norm = [&](TensorView with, TensorView bias, float eps, TensorView out) {
    return refusal([&] { testing.ops().layer_norm(x, with, bias, eps, out, testing.stream()); });
  };
  CHECK(norm(weight, weight, 0, x) == "accepted");
  CHECK(norm(weight, weight, 1e-6f, part(data, 8, {2, 4})) == "accepted");
  CHECK(mentions(norm(part(data, 20, {5}), weight, 0, x), "weight has shape [5], must be [4]"));
  CHECK(mentions(norm(weight, part(data, 20, {3}), 0, x), "bias has shape [3], must be [4]"));
  CHECK(mentions(norm(weight, {nullptr, DType::kF32, {4}}, 0, x), "bias has no data"));
  CHECK(mentions(norm(weight, weight, -1, x), "eps is -1"));
  CHECK(mentions(norm(weight, weight, 0, part(data, 4, {2, 4})), "out and x overlap"));
  CHECK(mentions(norm(weight, weight, 0, part(data, 8, {4, 2})), "out has shape [4, 2], must be [2, 4]"));
}

TEST_CASE("pool_squares refuses grids that are none and squares that do not cut them evenly") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(48, 1), {16, 3});
  const DeviceTensor out = testing.empty({4, 3});
  const auto pool = [&](ConstTensorView from, std::int64_t k, TensorView to) {
    return refusal([&] { testing.ops().pool_squares(from, k, to, testing.stream()); });
  };
  CHECK(pool(x.view, 2, out.view) == "accepted");
  CHECK(mentions(pool(part(x, 0, {15, 3}), 1, out.view), "x has 15 rows"));
  const std::int64_t bad = GENERATE(-2, 0, 3, 8);
  CHECK(mentions(pool(x.view, bad, out.view), ("k is " + std::to_string(bad)).c_str()));
  CHECK(mentions(pool(x.view, 2, part(x, 0, {4, 3})), "out and x overlap"));
  CHECK(mentions(pool(x.view, 4, out.view), "out has shape [4, 3], must be [1, 3]"));
}

}  // namespace gemmad
