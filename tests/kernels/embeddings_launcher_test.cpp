// What the operations that turn hidden states into embeddings refuse, before any work.
#include <string>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

// "accepted", or why not.
template <typename Call>
std::string answer(const Call& call) {
  try {
    call();
  } catch (const OpError& error) {
    return error.what();
  }
  return "accepted";
}

TensorView with_dtype(TensorView view, DType dtype) {
  view.dtype = dtype;
  return view;
}

}  // namespace

TEST_CASE("linear names what has another shape or type, and what overlaps") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(12, 1), {3, 4});
  const DeviceTensor w = testing.put(random_values(20, 2), {5, 4});
  const DeviceTensor bias = testing.put(random_values(5, 3), {5});
  const DeviceTensor add = testing.put(random_values(15, 4), {3, 5});
  const DeviceTensor y = testing.empty({3, 5});
  const auto with = [&](const auto& change) {
    Ops::Linear args{x.view, w.view, bias.view, Activation::kGelu, add.view, y.view};
    change(args);
    return answer([&] { testing.ops().linear(args, testing.stream()); });
  };
  CHECK(with([](Ops::Linear&) {}) == "accepted");
  CHECK(with([](Ops::Linear& args) { args.bias = args.add = {}; }) == "accepted");
  CHECK(with([&](Ops::Linear& args) { args.y = add.view; }) == "accepted");
  CHECK(with([&](Ops::Linear& args) { args.w = y.view; }) == "linear: w has shape [3, 5], must be [3, 4]");
  CHECK(with([&](Ops::Linear& args) { args.x = bias.view; }) ==
        "linear: x has shape [5], must have 2 extents");
  CHECK(with([&](Ops::Linear& args) { args.bias = y.view; }) == "linear: bias has shape [3, 5], must be [5]");
  CHECK(with([&](Ops::Linear& args) { args.add = x.view; }) ==
        "linear: add has shape [3, 4], must be [3, 5]");
  CHECK(with([&](Ops::Linear& args) { args.y = w.view; }) == "linear: y has shape [5, 4], must be [3, 5]");
  CHECK(with([&](Ops::Linear& args) { args.x = with_dtype(x.view, DType::kBF16); }) ==
        "linear: x is BF16, must be F32");
  const TensorView among_w{w.view.as<float>() + 5, DType::kF32, {3, 5}};
  CHECK(with([&](Ops::Linear& args) { args.y = among_w; }) == "linear: y and w overlap");
  const DeviceTensor shared = testing.empty({4, 5});
  CHECK(with([&](Ops::Linear& args) {
          args.add = TensorView{shared.view.data, DType::kF32, {3, 5}};
          args.y = TensorView{shared.view.as<float>() + 5, DType::kF32, {3, 5}};
        }) == "linear: y and add overlap");
}

TEST_CASE("gemm_sums and add_bias name what has another shape or type, and what overlaps") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const DeviceTensor x = testing.put(random_values(12, 1), {3, 4});
  const DeviceTensor w = testing.put(random_values(20, 2), {5, 4});
  const DeviceTensor bias = testing.put(random_values(5, 3), {5});
  const DeviceTensor sums = testing.empty({3, 5}, DType::kF32);
  const DeviceTensor out = testing.empty({3, 5});
  const auto multiply = [&](ConstTensorView weight, TensorView to) {
    return answer([&] { ops.gemm_sums(x.view, weight, false, to, testing.stream()); });
  };
  CHECK(multiply(w.view, sums.view) == "accepted");
  CHECK(multiply(sums.view, sums.view) == "gemm_sums: w has shape [3, 5], must be [3, 4]");
  CHECK(multiply(w.view, x.view) == "gemm_sums: sums has shape [3, 4], must be [3, 5]");
  CHECK(multiply(w.view, with_dtype(sums.view, DType::kBF16)) == "gemm_sums: sums is BF16, must be F32");
  CHECK(multiply(w.view, {w.view.data, DType::kF32, {3, 5}}) == "gemm_sums: sums and w overlap");
  const auto add = [&](ConstTensorView from, ConstTensorView to_add, TensorView to) {
    return answer([&] { ops.add_bias(from, to_add, to, testing.stream()); });
  };
  CHECK(add(sums.view, bias.view, out.view) == "accepted");
  CHECK(add(sums.view, {}, out.view) == "accepted");
  CHECK(add(sums.view, w.view, out.view) == "add_bias: bias has shape [5, 4], must be [5]");
  CHECK(add(sums.view, {}, x.view) == "add_bias: out has shape [3, 4], must be [3, 5]");
  CHECK(add(sums.view, {}, sums.view) == "add_bias: out and sums overlap");
}

TEST_CASE("rms_rows and range_rows name what has another shape or type, and what overlaps") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const DeviceTensor x = testing.put(random_values(12, 1), {3, 4});
  const DeviceTensor rows = testing.put({2, 0});
  const DeviceTensor bounds = testing.put({0, 1, 2});
  const DeviceTensor scratch = testing.empty({2, Ops::kRangeScratch}, DType::kF32);
  const DeviceTensor out = testing.empty({2, 4});
  const auto rms = [&](ConstTensorView which, float eps, TensorView to) {
    return answer([&] { ops.rms_rows(x.view, which, 1, eps, to, testing.stream()); });
  };
  CHECK(rms(rows.view, 0, out.view) == "accepted");
  CHECK(rms(rows.view, -1, out.view).find("eps is -1") != std::string::npos);
  CHECK(rms(with_dtype(rows.view, DType::kF32), 0, out.view) == "rms_rows: rows is F32, must be I32");
  CHECK(rms(bounds.view, 0, out.view) == "rms_rows: out has shape [2, 4], must be [3, 4]");
  CHECK(rms(out.view, 0, out.view) == "rms_rows: rows has shape [2, 4], must have 1 extents");
  CHECK(rms(rows.view, 0, {x.view.data, DType::kF32, {2, 4}}) == "rms_rows: out and x overlap");
  const auto range = [&](ConstTensorView which, ConstTensorView at, TensorView between, TensorView to) {
    return answer([&] { ops.range_rows(x.view, which, at, 1e-6f, between, to, testing.stream()); });
  };
  CHECK(range(rows.view, bounds.view, scratch.view, out.view) == "accepted");
  CHECK(range(rows.view, rows.view, scratch.view, out.view) ==
        "range_rows: bounds has shape [2], must be [3]");
  CHECK(range(rows.view, with_dtype(bounds.view, DType::kF32), scratch.view, out.view) ==
        "range_rows: bounds is F32, must be I32");
  CHECK(range(rows.view, bounds.view, out.view, out.view) ==
        "range_rows: scratch has shape [2, 4], must be [2, 384]");
  CHECK(range(rows.view, bounds.view, scratch.view, x.view) ==
        "range_rows: out has shape [3, 4], must be [2, 4]");
  CHECK(range(rows.view, bounds.view, scratch.view, {x.view.data, DType::kF32, {2, 4}}) ==
        "range_rows: out and x overlap");
}

TEST_CASE("fill_registers names what has another shape, and what overlaps") {
  OpTesting testing;
  const DeviceTensor features = testing.put(random_values(12, 1), {3, 4});
  const DeviceTensor registers = testing.put(random_values(8, 2), {2, 4});
  const DeviceTensor bounds = testing.put({0, 1, 3});
  const DeviceTensor out = testing.empty({10, 4});
  const auto fill = [&](ConstTensorView at, ConstTensorView with, TensorView to) {
    return answer([&] { testing.ops().fill_registers(features.view, at, with, to, testing.stream()); });
  };
  CHECK(fill(bounds.view, registers.view, out.view) == "accepted");
  CHECK(fill(bounds.view, testing.empty({2, 3}).view, out.view) ==
        "fill_registers: registers has shape [2, 3], must be [2, 4]");
  CHECK(fill(bounds.view, registers.view, testing.empty({10, 3}).view) ==
        "fill_registers: out has shape [10, 3], must be [10, 4]");
  CHECK(
      fill(bounds.view, registers.view, testing.empty({9, 4}).view).find("out has 9 rows for 2 sequences") !=
      std::string::npos);
  CHECK(fill(testing.put({0}).view, registers.view, out.view).find("for 0 sequences") != std::string::npos);
  CHECK(fill(bounds.view, testing.empty({0, 4}).view, out.view).find("0 registers") != std::string::npos);
  CHECK(fill(bounds.view, registers.view, {features.view.data, DType::kF32, {2, 4}}) ==
        "fill_registers: out and features overlap");
}

TEST_CASE("norm_rope_across names what has another shape, and refuses shared keys") {
  OpTesting testing;
  const HeadLayout good{2, 2, 4};
  const DeviceTensor qkv = testing.put(random_values(3 * 24, 1), {3, 24});
  const DeviceTensor weight = testing.put(random_values(8, 2), {8});
  const DeviceTensor rope = testing.put(random_values(40, 3), {5, 8});
  const auto turn = [&](HeadLayout heads, TensorView in, ConstTensorView k_weight, ConstTensorView angles) {
    return answer([&] {
      testing.ops().norm_rope_across(in, heads, weight.view, k_weight, 1e-6f, angles, RopePairs::kHalves,
                                     testing.stream());
    });
  };
  CHECK(turn(good, qkv.view, weight.view, rope.view) == "accepted");
  CHECK(turn({4, 1, 4}, qkv.view, weight.view, rope.view) ==
        "norm_rope_across: num_kv_heads is 1, must be num_heads, 4");
  CHECK(turn({8, 8, 1}, qkv.view, weight.view, rope.view).find("head_dim is 1") != std::string::npos);
  CHECK(turn({3, 3, 4}, qkv.view, weight.view, rope.view) ==
        "norm_rope_across: qkv has shape [3, 24], must be [3, 36]");
  CHECK(turn(good, qkv.view, testing.empty({4}).view, rope.view) ==
        "norm_rope_across: k_weight has shape [4], must be [8]");
  CHECK(turn(good, qkv.view, weight.view, testing.empty({5, 4}).view) ==
        "norm_rope_across: rope has shape [5, 4], must be [5, 8]");
  CHECK(turn(good, qkv.view, weight.view, testing.empty({0, 8}).view) ==
        "norm_rope_across: rope has no positions");
}

TEST_CASE("gate_heads names what has another shape, and what overlaps") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(24, 1), {3, 8});
  const auto gate = [&](ConstTensorView logits) {
    return answer([&] { testing.ops().gate_heads(x.view, logits, testing.stream()); });
  };
  CHECK(gate(testing.put(random_values(6, 1), {3, 2}).view) == "accepted");
  CHECK(gate(testing.empty({2, 2}).view) == "gate_heads: logits has shape [2, 2], must be [3, 2]");
  CHECK(gate(testing.empty({3, 3}).view) == "gate_heads: x has 8 columns, must be a multiple of logits', 3");
  CHECK(gate(testing.empty({3, 0}).view).find("logits', 0") != std::string::npos);
  CHECK(gate({x.view.data, DType::kF32, {3, 2}}) == "gate_heads: x and logits overlap");
}

}  // namespace gemmad
