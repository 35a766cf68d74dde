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
  CHECK(mentions(refusal([&] { testing.ops().geglu(nothing, 2, out.view, testing.stream()); }), "no data"));
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
  const auto add = [&](TensorView x_out, TensorView normed) {
    const DeviceTensor y = testing.empty({3, 4});
    return refusal([&] {
      ops.add_norm({y.view, nullptr, weight.view, first, x_out, weight.view, normed, 1e-6f},
                   testing.stream());
    });
  };
  CHECK(mentions(add(shifted, {}), "x_out and x overlap"));
  CHECK(mentions(add(first, first), "normed and x overlap"));
  CHECK(mentions(refusal([&] {
                   ops.add_norm({first, nullptr, weight.view, first, first, {}, {}, 1e-6f}, testing.stream());
                 }),
                 "x and y overlap"));
}

TEST_CASE("gemm refuses results between the rows of an input, and takes those behind it") {
  OpTesting testing;
  const DeviceTensor whole = testing.put(std::vector<float>(64, 1.0f), {8, 8});
  const MatrixView all = whole.view;
  const ConstTensorView x{whole.view.data, DType::kF32, {2, 4}};  // row 0
  const auto multiply = [&](ConstMatrixView w, MatrixView y) {
    return refusal([&] { testing.ops().gemm(x, w, y, testing.stream()); });
  };
  const MatrixView w = all.row_range(1, 4).column_range(0, 4);
  CHECK(mentions(multiply(w, all.row_range(1, 3).column_range(4, 7)), "y and w overlap"));
  CHECK(mentions(multiply(w, all.row_range(3, 5).column_range(3, 6)), "y and w overlap"));
  CHECK(mentions(multiply(w, all.row_range(0, 2).column_range(5, 8)), "y and x overlap"));
  CHECK(multiply(w, all.row_range(3, 5).column_range(4, 7)) == "accepted");
}

TEST_CASE("gemm refuses overlapping rows and a wrong shape, type or number of extents") {
  OpTesting testing;
  const DeviceTensor data = testing.empty({64});
  const ConstTensorView x{data.view.data, DType::kF32, {2, 4}};
  const MatrixView w{data.view.as<float>() + 16, DType::kF32, 3, 4, 4};
  const MatrixView y{data.view.as<float>() + 32, DType::kF32, 2, 3, 3};
  const auto multiply = [&](ConstMatrixView weight, MatrixView result) {
    return refusal([&] { testing.ops().gemm(x, weight, result, testing.stream()); });
  };
  const auto with = [](MatrixView matrix, std::int64_t MatrixView::*member, std::int64_t value) {
    matrix.*member = value;
    return matrix;
  };
  CHECK(multiply(w, y) == "accepted");
  CHECK(mentions(multiply(with(w, &MatrixView::row_stride, 3), y), "w has 3 rows of 4 columns, 3 elements"));
  CHECK(
      mentions(multiply(w, with(y, &MatrixView::row_stride, -3)), "y has 2 rows of 3 columns, -3 elements"));
  CHECK(mentions(multiply(with(w, &MatrixView::rows, -1), y), "w has -1 rows"));
  CHECK(mentions(multiply(with(w, &MatrixView::row_stride, std::int64_t{1} << 31), y), "32 bits"));
  CHECK(mentions(multiply(w, with(y, &MatrixView::columns, 2)), "y has shape [2, 2], must be [2, 3]"));
  CHECK(mentions(multiply({w.data, DType::kBF16, 3, 4, 4}, y), "w is BF16"));
  CHECK_THROWS_AS(multiply(data.view, y), std::invalid_argument);
}

TEST_CASE("geglu refuses blocks that do not cut a row evenly") {
  OpTesting testing;
  const DeviceTensor gate_up = testing.empty({2, 16});
  const DeviceTensor out = testing.empty({2, 8});
  const auto with_block = [&](std::int64_t block) {
    return refusal([&] { testing.ops().geglu(gate_up.view, block, out.view, testing.stream()); });
  };
  const std::int64_t bad = GENERATE(-4, 0, 3, 16);
  CAPTURE(bad);
  CHECK(mentions(with_block(bad), ("block is " + std::to_string(bad)).c_str()));
  CHECK(mentions(with_block(bad), "columns, 8"));
}

TEST_CASE("attention refuses bad head layouts and windows, begins and ends of another number or type") {
  OpTesting testing;
  const DeviceTensor qkv = testing.empty({4, 24});
  const DeviceTensor out = testing.empty({4, 16});
  const auto attend = [&](HeadLayout heads, std::int64_t window, const DeviceTensor& begins,
                          ConstTensorView ends = {}) {
    return refusal([&] {
      testing.ops().attention(qkv.view, {begins.view, ends}, {heads, 1, window}, out.view, testing.stream());
    });
  };
  const HeadLayout good{4, 1, 4};
  const DeviceTensor begins = testing.put({0, 0, 2, 2});
  CHECK(attend(good, 0, begins) == "accepted");
  CHECK(mentions(attend({3, 2, 4}, 0, begins), "num_heads"));
  CHECK(mentions(attend({4, 0, 4}, 0, begins), "num_heads"));
  CHECK(mentions(attend({4, 1, 3}, 0, begins), "head_dim"));
  CHECK(mentions(attend(good, -1, begins), "window"));
  CHECK(mentions(attend(good, 0, testing.put({0, 0, 0})), "begins"));
  CHECK(mentions(attend(good, 0, testing.empty({4})), "begins"));
  CHECK(attend(good, 0, begins, testing.put({2, 2, 3, 4}).view) == "accepted");
  CHECK(mentions(attend(good, 0, begins, testing.put({2, 2, 4}).view), "ends has shape [3], must be [4]"));
  CHECK(mentions(attend(good, 0, begins, testing.empty({4}).view), "ends is F32"));
}

TEST_CASE("gemm_geglu refuses a block, a result or a scratch of another size") {
  OpTesting testing;
  const DeviceTensor x = testing.put(std::vector<float>(16, 1.0f), {2, 8});
  const DeviceTensor w = testing.put(std::vector<float>(96, 1.0f), {12, 8});
  const DeviceTensor scratch = testing.empty({2, 12});
  const DeviceTensor out = testing.empty({2, 6});
  const auto multiply = [&](std::int64_t block, TensorView between, TensorView result) {
    return refusal(
        [&] { testing.ops().gemm_geglu(x.view, w.view, block, between, result, testing.stream()); });
  };
  CHECK(multiply(3, scratch.view, out.view) == "accepted");
  CHECK(mentions(multiply(4, scratch.view, out.view), "block is 4"));
  CHECK(mentions(multiply(0, scratch.view, out.view), "block is 0"));
  CHECK(mentions(multiply(3, out.view, out.view), "scratch has shape [2, 6]"));
  CHECK(mentions(multiply(3, scratch.view, scratch.view), "out has shape [2, 12]"));
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

TEST_CASE("upload_matrix takes a part of a matrix of any type, row by row") {
  OpTesting testing(3);
  constexpr std::int64_t kRows = 61;
  constexpr std::int64_t kColumns = 301;
  std::vector<std::uint16_t> bf16;
  std::vector<float> f32;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    bf16.push_back(static_cast<std::uint16_t>(i % 30000));
    f32.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bf16.back()) << 16));
  }
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const void* data = dtype == DType::kF32 ? static_cast<const void*>(f32.data()) : bf16.data();
  const ConstMatrixView whole{data, dtype, kRows, kColumns, kColumns};
  struct Part {
    std::int64_t row_begin, row_end, column_begin, column_end;
  };
  const Part part = GENERATE(Part{0, 61, 0, 301}, Part{7, 60, 0, 301}, Part{0, 61, 13, 300},
                             Part{5, 6, 300, 301}, Part{3, 41, 128, 256});
  CAPTURE(part.row_begin, part.row_end, part.column_begin, part.column_end);
  const ConstMatrixView from =
      whole.row_range(part.row_begin, part.row_end).column_range(part.column_begin, part.column_end);
  const DeviceTensor out = testing.empty({from.rows, from.columns});
  testing.ops().upload_matrix(out.view, from, testing.stream());
  std::vector<float> expected;
  for (std::int64_t row = part.row_begin; row < part.row_end; ++row) {
    expected.insert(expected.end(), f32.begin() + row * kColumns + part.column_begin,
                    f32.begin() + row * kColumns + part.column_end);
  }
  CHECK((testing.get(out.view) == expected));
}

TEST_CASE("upload_stack puts parts of matrices on top of each other, of any type") {
  OpTesting testing(3);
  std::vector<float> values = random_values(20 * 9, 4);
  std::vector<std::uint16_t> bf16;
  for (float& value : values) {
    bf16.push_back(f32_to_bf16(value));
    value = bf16_to_f32(bf16.back());
  }
  const ConstMatrixView wide{values.data(), DType::kF32, 20, 9, 9};
  const ConstMatrixView narrow{bf16.data(), DType::kBF16, 20, 9, 9};
  const std::vector<ConstMatrixView> parts = {wide.row_range(2, 5), narrow.row_range(0, 0),
                                              narrow.row_range(7, 8), wide.row_range(0, 20)};
  const DeviceTensor out = testing.empty({24, 9});
  testing.ops().upload_stack(out.view, parts, testing.stream());
  std::vector<float> expected(values.begin() + 2 * 9, values.begin() + 5 * 9);
  expected.insert(expected.end(), values.begin() + 7 * 9, values.begin() + 8 * 9);
  expected.insert(expected.end(), values.begin(), values.end());
  CHECK((testing.get(out.view) == expected));

  const auto refused = [&](const Shape& shape, std::vector<ConstMatrixView> of) {
    const DeviceTensor to = testing.empty(shape);
    return refusal([&] { testing.ops().upload_stack(to.view, of, testing.stream()); });
  };
  CHECK(mentions(refused({23, 9}, parts), "dst has shape [23, 9]"));
  CHECK(mentions(refused({3, 8}, {wide.row_range(0, 3)}), "a part has shape [3, 9]"));
}

TEST_CASE("upload_matrix of no rows or no columns does nothing") {
  OpTesting testing;
  const DeviceTensor whole = testing.put(random_values(12, 1), {3, 4});
  const ConstMatrixView from = whole.view;
  testing.ops().upload_matrix(testing.empty({3, 0}).view, from.column_range(2, 2), testing.stream());
  testing.ops().upload_matrix(testing.empty({0, 4}).view, from.row_range(1, 1), testing.stream());
}

TEST_CASE("upload_matrix refuses another shape, and a result among what it reads") {
  OpTesting testing;
  const DeviceTensor whole = testing.empty({4, 8});
  const ConstMatrixView from = ConstMatrixView(whole.view).column_range(0, 3);
  const DeviceTensor out = testing.empty({4, 4});
  CHECK(mentions(refusal([&] { testing.ops().upload_matrix(out.view, from, testing.stream()); }), "[4, 3]"));
  const TensorView among{whole.view.as<float>() + 16, DType::kF32, {4, 3}};
  CHECK(mentions(refusal([&] { testing.ops().upload_matrix(among, from, testing.stream()); }), "overlap"));
}

TEST_CASE("Some rows are worth a pass of their own, fewer than a prompt may have") {
  OpTesting testing;
  CHECK(testing.ops().efficient_rows() >= 1);
  CHECK(testing.ops().efficient_rows() <= 1024);
}

}  // namespace gemmad
