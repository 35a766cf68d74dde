#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "kernels/base/file_descriptor.h"
#include "kernels/base/float_formats.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/memory.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

// Counts what is out.
class CountingMemory final : public Memory {
 public:
  void* allocate(std::size_t size_bytes) override {
    ++live;
    return ::operator new(size_bytes);
  }
  void release(void* data, std::size_t) noexcept override {
    --live;
    ::operator delete(data);
  }
  int live = 0;
};

}  // namespace

TEST_CASE("Buffer gives back what it owns, once, wherever it was moved") {
  const auto memory = std::make_shared<CountingMemory>();
  {
    Buffer first(memory, 100);
    Buffer second(std::move(first));
    CHECK(first.data() == nullptr);
    CHECK(second.size_bytes() == 100);
    Buffer third(memory, 50);
    CHECK(memory->live == 2);
    third = std::move(second);
    CHECK(memory->live == 1);
    CHECK(third.size_bytes() == 100);
  }
  CHECK(memory->live == 0);
}

TEST_CASE("Buffer refuses views that do not fit") {
  const Buffer buffer(std::make_shared<CountingMemory>(), 64);
  CHECK(buffer.view(DType::kF32, {4, 4}).size_bytes() == 64);
  CHECK_THROWS_AS(buffer.view(DType::kF32, {17}), std::out_of_range);
  CHECK_THROWS_AS(buffer.view(DType::kF32, {4, 4}, 4), std::out_of_range);
  CHECK_THROWS_AS(buffer.view(DType::kU8, {1}, 65), std::out_of_range);
}

TEST_CASE("A tensor of two extents is a matrix, any other is none") {
  float data[12] = {};
  const TensorView tensor{data, DType::kF32, {3, 4}};
  const MatrixView matrix = tensor;
  CHECK(matrix.data == data);
  CHECK(matrix.dtype == DType::kF32);
  CHECK(matrix.rows == 3);
  CHECK(matrix.columns == 4);
  CHECK(matrix.row_stride == 4);
  CHECK(matrix.span_bytes() == 48);
  const ConstMatrixView same = ConstTensorView(tensor);
  CHECK(same.data == data);
  CHECK(same.row_stride == 4);

  const Shape shape = GENERATE(Shape{}, Shape{12}, Shape{3, 2, 2});
  CAPTURE(shape.text());
  const TensorView other{data, DType::kF32, shape};
  CHECK_THROWS_AS(MatrixView(other), std::invalid_argument);
  CHECK_THROWS_AS(ConstMatrixView(other), std::invalid_argument);
  CHECK_THROWS_AS(ConstMatrixView(ConstTensorView(other)), std::invalid_argument);
}

TEST_CASE("Ranges of rows and columns of a matrix are views into it") {
  std::uint16_t data[5 * 7] = {};
  const MatrixView matrix{data, DType::kBF16, 5, 7, 7};
  const ConstMatrixView part = matrix.row_range(1, 4).column_range(2, 5).row_range(1, 3);
  CHECK(part.data == data + 2 * 7 + 2);
  CHECK(part.rows == 2);
  CHECK(part.columns == 3);
  CHECK(part.row_stride == 7);
  CHECK(part.span_bytes() == (7 + 3) * 2);
  CHECK(matrix.row_range(5, 5).span_bytes() == 0);
  CHECK(matrix.column_range(7, 7).span_bytes() == 0);
}

TEST_CASE("A matrix refuses ranges of rows and columns that it lacks") {
  std::vector<float> data(20);
  const MatrixView matrix{data.data(), DType::kF32, 4, 5, 5};
  CHECK_THROWS_AS(matrix.row_range(-1, 2), std::out_of_range);
  CHECK_THROWS_AS(matrix.row_range(3, 2), std::out_of_range);
  CHECK_THROWS_AS(matrix.row_range(0, 5), std::out_of_range);
  CHECK_THROWS_AS(matrix.column_range(-1, 2), std::out_of_range);
  CHECK_THROWS_AS(matrix.column_range(3, 2), std::out_of_range);
  CHECK_THROWS_AS(matrix.column_range(0, 6), std::out_of_range);
  CHECK_THROWS_AS(ConstMatrixView(matrix).column_range(0, 2).column_range(0, 3), std::out_of_range);
}

TEST_CASE("MappedFile shows a file's bytes, also after it was moved") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "file";
  write_file(file, "seven b");
  MappedFile first(file);
  const MappedFile second(std::move(first));
  REQUIRE(second.bytes().size() == 7);
  CHECK(std::memcmp(second.bytes().data(), "seven b", 7) == 0);
  CHECK(first.bytes().empty());
  second.release_pages(second.bytes());
  second.prefetch_pages(second.bytes());
  CHECK(std::memcmp(second.bytes().data(), "seven b", 7) == 0);
}

TEST_CASE("MappedFile takes an empty file and refuses what is none, by name") {
  const ScratchFolder folder;
  write_file(folder.path() / "empty", "");
  CHECK(MappedFile(folder.path() / "empty").bytes().empty());
  CHECK_THROWS_AS(MappedFile(folder.path()), SystemError);
  try {
    MappedFile missing(folder.path() / "missing");
    FAIL("a missing file was mapped");
  } catch (const SystemError& error) {
    CHECK(std::string(error.what()).find("missing") != std::string::npos);
    CHECK(error.code().value() == ENOENT);
  }
}

TEST_CASE("MappedFile reads any part of a file, also after it was moved") {
  const ScratchFolder folder;
  write_file(folder.path() / "file", "seven b");
  MappedFile first(folder.path() / "file");
  const MappedFile second(std::move(first));
  char part[4] = {};
  second.read(2, std::as_writable_bytes(std::span(part)));
  CHECK(std::memcmp(part, "ven ", 4) == 0);
  second.read(7, {});
}

TEST_CASE("MappedFile reads past a cut end as an error that names the file, not as a signal") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "file";
  write_file(file, "seven b");
  const MappedFile mapped(file);
  std::filesystem::resize_file(file, 3);
  char part[4] = {};
  std::string message = "read";
  try {
    mapped.read(2, std::as_writable_bytes(std::span(part)));
  } catch (const SystemError& error) {
    message = error.what();
  }
  CHECK(message.find(file.string()) != std::string::npos);
  CHECK(message.find("cut short") != std::string::npos);
}

TEST_CASE("MappedFile tells whether its file was written to or cut since, whatever became of its name") {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  const fs::path file = folder.path() / "file";
  write_file(file, "seven b");
  const MappedFile mapped(file);
  mapped.check_unchanged();
  const auto message = [&] {
    try {
      mapped.check_unchanged();
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
    return std::string("unchanged");
  };
  const fs::file_time_type opened = fs::last_write_time(file);
  fs::last_write_time(file, opened + std::chrono::seconds(1));
  CHECK(message().find(file.string() + ": it was written to") != std::string::npos);
  fs::last_write_time(file, opened);
  CHECK(message() == "unchanged");
  fs::resize_file(file, 3);
  fs::last_write_time(file, opened);
  CHECK(message().find("7 bytes then, 3 now") != std::string::npos);

  write_file(folder.path() / "other", "eleven byte");
  const MappedFile replaced(folder.path() / "other");
  fs::rename(file, folder.path() / "other");
  replaced.check_unchanged();
  fs::remove(folder.path() / "other");
  replaced.check_unchanged();
}

TEST_CASE("bf16 conversion rounds to nearest, ties to even") {
  CHECK(f32_to_bf16(1.0f) == 0x3f80);
  CHECK(f32_to_bf16(1.00390625f) == 0x3f80);  // a tie, down to even
  CHECK(f32_to_bf16(1.01171875f) == 0x3f82);  // a tie, up to even
  CHECK(f32_to_bf16(1.00390637f) == 0x3f81);
  CHECK(f32_to_bf16(3.4e38f) == 0x7f80);
  CHECK(f32_to_bf16(-0.0f) == 0x8000);
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) REQUIRE(f32_to_bf16(value) == bits);
  }
}

TEST_CASE("f16 conversion is exact for every value") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double mantissa = static_cast<double>(bits & 1023) / 1024;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) {
      REQUIRE((mantissa == 0 ? std::isinf(value) : std::isnan(value)));
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
      REQUIRE(value == sign * expected);
      REQUIRE(std::signbit(value) == (sign < 0));
    }
  }
}

}  // namespace gemmad
