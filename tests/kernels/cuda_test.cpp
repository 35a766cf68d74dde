// What only a GPU does: recorded work, pinned memory, tuned products, memory that runs out.
#include "kernels/cuda/cuda_ops.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

using Floats = std::vector<float>;

struct Operands {
  DeviceTensor x;
  DeviceTensor w;
  DeviceTensor y;
};

Operands make_operands(OpTesting& testing, std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  return {testing.put(random_values(rows * inputs, 1), {rows, inputs}),
          testing.put(random_values(outputs * inputs, 2), {outputs, inputs}),
          testing.put(Floats(static_cast<std::size_t>(rows * outputs), NAN), {rows, outputs})};
}

}  // namespace

TEST_CASE("Recorded work gives the same bytes as work that is told, with new inputs in the same places") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const Operands at = make_operands(testing, 33, 256, 512);
  const DeviceTensor weight = testing.put(random_values(512, 3, 0.1f), {512});
  const DeviceTensor normed = testing.empty({33, 512});
  const auto body = [&] {
    ops.gemm(at.x.view, at.w.view, at.y.view, testing.stream());
    ops.rms_norm(at.y.view, weight.view, 1e-6f, normed.view, testing.stream());
  };
  const auto recordings = ops.make_recordings();
  int calls = 0;
  for (int round = 0; round < 6; ++round) {
    const Floats values = random_values(33 * 256, static_cast<std::uint64_t>(10 + round));
    ops.upload(at.x.view, {values.data(), DType::kF32, {33, 256}}, testing.stream());
    body();
    const Floats told = testing.get(normed.view);
    recordings->run(33, 0, testing.stream(), [&] {
      ++calls;
      body();
    });
    CHECK(testing.get(normed.view) == told);
  }
  CHECK(calls == 2);
}

TEST_CASE("Marks in recorded work let another stream in as soon as it has come to them") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const Operands at = make_operands(testing, 2048, 2048, 2048);
  const DeviceTensor first = testing.empty({2048, 2048});
  std::vector<std::byte> host(first.view.size_bytes());
  const auto pinned = ops.pin(host);
  const auto body = [&] {
    for (int i = 0; i < 20; ++i)
      ops.gemm(at.x.view, at.w.view, first.view, testing.stream());
    ops.set_mark(3, testing.stream());
    for (int i = 0; i < 200; ++i)
      ops.gemm(at.x.view, at.w.view, at.y.view, testing.stream());
    ops.set_mark(4, testing.stream());
  };
  const auto recordings = ops.make_recordings();
  for (int round = 0; round < 6; ++round) {
    const Floats values = random_values(2048 * 2048, static_cast<std::uint64_t>(round));
    ops.upload(at.x.view, {values.data(), DType::kF32, {2048, 2048}}, testing.stream());
    recordings->run(1, 1, testing.stream(), body);
    ops.wait_for(ops.copy_stream(), Moment{testing.stream(), 3});
    ops.copy_to_host({host.data(), DType::kBF16, first.view.shape}, first.view, ops.copy_stream());
    ops.synchronize(ops.copy_stream());
    if (round > 1) CHECK_FALSE(ops.is_done(testing.stream()));  // much work behind the mark
    const Floats expected = testing.get(first.view);
    for (std::size_t i = 0; i < expected.size(); i += 97)
      REQUIRE(bf16_to_f32(load_u16(host.data(), static_cast<std::int64_t>(i))) == expected[i]);
  }
}

TEST_CASE("Recordings forget the shapes that have not come for long") {
  OpTesting testing;
  const DeviceTensor x = testing.put(random_values(64, 1), {2, 32});
  const DeviceTensor weight = testing.put(random_values(32, 2), {32});
  const auto recordings = testing.ops().make_recordings();
  int calls = 0;
  const auto run = [&](std::int64_t shape) {
    recordings->run(shape, 0, testing.stream(), [&] {
      ++calls;
      testing.ops().rms_norm(x.view, weight.view, 1e-6f, x.view, testing.stream());
    });
  };
  for (int round = 0; round < 3; ++round)
    run(1);
  CHECK(calls == 2);
  for (std::int64_t shape = 2; shape < 40; ++shape)
    run(shape);
  run(1);
  CHECK(calls == 2 + 38 + 1);
  testing.ops().synchronize(testing.stream());
}

TEST_CASE("Tuned products stay right, are kept in a file and give the same bytes after it was read") {
  const ScratchFolder folder;
  const auto product = [&] {
    const std::unique_ptr<Ops> ops = make_cuda_ops({0, 2, folder.path()});
    OpTesting testing;  // the same device
    const Operands at = make_operands(testing, 48, 640, 1024);
    const ConstMatrixView weights[] = {at.w.view, at.w.view};
    ops->tune_gemm(at.x.view, weights, at.y.view, 0);
    CHECK_FALSE(ops->save_tuning());
    ops->gemm(at.x.view, at.w.view, at.y.view, ops->stream());
    ops->synchronize(ops->stream());
    return testing.get(at.y.view);
  };
  const Floats first = product();
  CHECK_FALSE(std::filesystem::is_empty(folder.path()));
  CHECK(product() == first);
}

TEST_CASE("Copies on the other stream see what was put on the first one before") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const Operands at = make_operands(testing, 512, 1024, 1024);
  std::vector<std::byte> host(at.y.view.size_bytes());
  const auto pinned = ops.pin(host);
  REQUIRE(pinned != nullptr);
  for (int round = 0; round < 20; ++round) {
    const Floats values = random_values(512 * 1024, static_cast<std::uint64_t>(round));
    ops.upload(at.x.view, {values.data(), DType::kF32, {512, 1024}}, testing.stream());
    ops.gemm(at.x.view, at.w.view, at.y.view, testing.stream());
    ops.wait_for(ops.copy_stream(), ops.stream());
    ops.copy_to_host({host.data(), DType::kBF16, {512, 1024}}, at.y.view, ops.copy_stream());
    ops.synchronize(ops.copy_stream());
    const Floats expected = testing.get(at.y.view);
    for (std::size_t i = 0; i < expected.size(); ++i)
      REQUIRE(bf16_to_f32(load_u16(host.data(), static_cast<std::int64_t>(i))) == expected[i]);
  }
}

TEST_CASE("Large weights of every type arrive whole, in pieces and from parts of matrices") {
  OpTesting testing(4);
  constexpr std::int64_t kRows = 5000;
  constexpr std::int64_t kColumns = 2500;  // more than a staging buffer holds
  std::vector<std::uint16_t> bf16(kRows * kColumns);
  for (std::size_t i = 0; i < bf16.size(); ++i)
    bf16[i] = static_cast<std::uint16_t>(i * 2654435761u >> 18);
  const ConstMatrixView whole{bf16.data(), DType::kBF16, kRows, kColumns, kColumns};
  const ConstMatrixView part = whole.column_range(100, 2300);
  const DeviceTensor out = testing.empty({part.rows, part.columns});
  testing.ops().upload_matrix(out.view, part, testing.stream());
  const Floats actual = testing.get(out.view);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < part.columns; ++column) {
      REQUIRE(std::bit_cast<std::uint32_t>(actual[static_cast<std::size_t>(row * part.columns + column)]) ==
              std::uint32_t{bf16[static_cast<std::size_t>(row * kColumns + column + 100)]} << 16);
    }
  }
}

TEST_CASE("A GPU that has too little memory says how much was asked and how much is free") {
  OpTesting testing;
  std::string message;
  try {
    Buffer buffer(testing.ops().memory(), std::size_t{1} << 48);
  } catch (const std::bad_alloc& error) {
    message = error.what();
  }
  INFO(message);
  CHECK(message.find("281474976710656 bytes of GPU memory") != std::string::npos);
  CHECK(message.find("are free") != std::string::npos);
  const Operands at = make_operands(testing, 4, 64, 64);  // and works on
  testing.ops().gemm(at.x.view, at.w.view, at.y.view, testing.stream());
  CHECK(std::isfinite(testing.get(at.y.view).front()));
}

TEST_CASE("What operations keep for themselves is given back and taken again") {
  OpTesting testing;
  Ops& ops = testing.ops();
  const Operands at = make_operands(testing, 40, 64, 64);
  ops.gemm(at.x.view, at.w.view, at.y.view, testing.stream());
  const Floats before = testing.get(at.y.view);
  const auto used = ops.memory_bytes()->free;
  ops.drop_scratch();
  CHECK(ops.memory_bytes()->free >= used + ops.scratch_bytes() / 2);
  ops.gemm(at.x.view, at.w.view, at.y.view, testing.stream());
  CHECK(testing.get(at.y.view) == before);
}

TEST_CASE("Batches are filled up little, to few different numbers of rows") {
  OpTesting testing;
  std::int64_t different = 0;
  for (std::int64_t rows = 1, last = 0; rows <= 8192; ++rows) {
    const std::int64_t padded = testing.ops().padded_rows(rows);
    REQUIRE(padded >= rows);
    REQUIRE(padded >= last);
    if (rows >= 128) REQUIRE(padded - rows <= rows / 4);
    different += padded != last;
    last = padded;
  }
  CHECK(different <= 49);
}

TEST_CASE("Heads are filled up to sizes that are fast") {
  OpTesting testing;
  CHECK(testing.ops().padded_head_dim(2) == 64);
  CHECK(testing.ops().padded_head_dim(72) == 128);
  CHECK(testing.ops().padded_head_dim(128) == 128);
  CHECK(testing.ops().padded_head_dim(256) == 256);
  CHECK(testing.ops().padded_head_dim(258) == 512);
  CHECK(testing.ops().padded_head_dim(514) == 514);
}

TEST_CASE("make_cuda_ops refuses a GPU that is not there, by its number") {
  std::string message;
  try {
    make_cuda_ops({1000, 1, {}});
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK(message.find("GPU 1000") != std::string::npos);
}

}  // namespace gemmad
