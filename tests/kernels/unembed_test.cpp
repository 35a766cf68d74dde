#include <cmath>
#include <cstring>
#include <random>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

struct Sizes {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t vocabulary;
};

// A table as a file has it, of values that all three types hold exactly.
struct HostTable {
  HostTable(DType type, std::int64_t vocabulary, std::int64_t width, std::size_t shift_bytes = 0)
      : dtype(type), shape{vocabulary, width}, shift(shift_bytes) {
    std::mt19937_64 random(3);
    bytes.resize(static_cast<std::size_t>(shape.num_elements()) * size_bytes(dtype) + shift);
    std::vector<std::uint16_t> f16(256);
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = f16_to_f32(static_cast<std::uint16_t>(bits)) * 64.0f + 127.0f;
      if (value >= 0 && value < 255 && value == std::floor(value) && bits != 0x8000)
        f16[static_cast<std::size_t>(value)] = static_cast<std::uint16_t>(bits);
    }
    for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
      const auto number = static_cast<std::size_t>(random() % 255);
      values.push_back((static_cast<float>(number) - 127.0f) / 64.0f);
      std::byte* const to = bytes.data() + shift + static_cast<std::size_t>(i) * size_bytes(dtype);
      const std::uint16_t bf16 = f32_to_bf16(values.back());
      if (dtype == DType::kF32) std::memcpy(to, &values.back(), 4);
      if (dtype == DType::kBF16) std::memcpy(to, &bf16, 2);
      if (dtype == DType::kF16) std::memcpy(to, &f16[number], 2);
    }
  }
  ConstTensorView view() const { return {bytes.data() + shift, dtype, shape}; }

  DType dtype;
  Shape shape;
  std::size_t shift;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

// Against table rows [begin, end). The sum makes about sqrt(D) roundings of partial sums below |x| |w|; 4
// leaves room. Tensor cores cut off what they add instead of rounding it.
void check_product(OpTesting& testing, const std::vector<float>& x, const HostTable& table,
                   std::int64_t begin, std::int64_t end, const std::vector<float>& actual) {
  const auto width = static_cast<std::size_t>(table.shape[1]);
  const double sum_limit = (testing.rounding() > 0 ? 16 : 4) * kEps;
  std::vector<double> expected;
  std::vector<double> limits;
  for (std::size_t row = 0; row < x.size(); row += width) {
    for (std::int64_t v = begin; v < end; ++v) {
      const float* w = table.values.data() + static_cast<std::size_t>(v) * width;
      double sum = 0;
      double x_squares = 0;
      double w_squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        sum += double{x[row + i]} * w[i];
        x_squares += double{x[row + i]} * x[row + i];
        w_squares += double{w[i]} * w[i];
      }
      expected.push_back(sum);
      limits.push_back(sum_limit * std::sqrt(x_squares * w_squares) +
                       (kEps + testing.rounding()) * std::abs(sum));
    }
  }
  CHECK(worst_share(actual, expected, limits) <= 1);
}

std::vector<float> unembed(OpTesting& testing, const std::vector<float>& x, ConstTensorView table) {
  const Shape shape{static_cast<std::int64_t>(x.size()) / table.shape[1], table.shape[0]};
  const DeviceTensor out =
      testing.put(std::vector<float>(static_cast<std::size_t>(shape.num_elements()), NAN), shape);
  testing.ops().unembed(testing.put(x, {shape[0], table.shape[1]}).view, table, out.view, testing.stream());
  return testing.get(out.view);
}

}  // namespace

TEST_CASE("unembed matches double precision for every type of table") {
  const Sizes sizes = GENERATE(Sizes{1, 1, 1}, Sizes{1, 640, 1000}, Sizes{1, 33, 63}, Sizes{2, 96, 65},
                               Sizes{3, 3840, 131}, Sizes{4, 96, 64}, Sizes{5, 96, 66}, Sizes{8, 1152, 200},
                               Sizes{17, 64, 129}, Sizes{64, 96, 257}, Sizes{130, 33, 31}, Sizes{2, 8, 5000});
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32);
  CAPTURE(sizes.rows, sizes.width, sizes.vocabulary, name(dtype));
  OpTesting testing(3);
  const HostTable host(dtype, sizes.vocabulary, sizes.width);
  const Ops::Table table = testing.ops().make_table(host.view(), nullptr);
  const std::vector<float> x = testing.rounded(random_values(sizes.rows * sizes.width, 1));
  check_product(testing, x, host, 0, sizes.vocabulary, unembed(testing, x, table.view));
}

TEST_CASE("unembed with some rows of the table gives their columns") {
  const std::int64_t rows = GENERATE(1, 4, 9);
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  CAPTURE(rows, name(dtype));
  OpTesting testing;
  const HostTable host(dtype, 300, 96);
  const Ops::Table table = testing.ops().make_table(host.view(), nullptr);
  const std::vector<float> x = testing.rounded(random_values(rows * 96, 1));
  struct Part {
    std::int64_t begin, end;
  };
  for (const Part part : {Part{0, 150}, Part{150, 300}, Part{299, 300}, Part{17, 118}, Part{40, 40}}) {
    CAPTURE(part.begin, part.end);
    const auto row_bytes = 96 * static_cast<std::int64_t>(size_bytes(table.view.dtype));
    const ConstTensorView some{
        table.view.as<std::byte>() + part.begin * row_bytes, table.view.dtype, {part.end - part.begin, 96}};
    check_product(testing, x, host, part.begin, part.end, unembed(testing, x, some));
  }
}

TEST_CASE("unembed reads a table at any address of the file") {
  const std::int64_t rows = GENERATE(1, 9);
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32);
  CAPTURE(rows, name(dtype));
  OpTesting testing;
  const HostTable host(dtype, 70, 96, 1);
  const Ops::Table table = testing.ops().make_table(host.view(), nullptr);
  const std::vector<float> x = testing.rounded(random_values(rows * 96, 1));
  check_product(testing, x, host, 0, 70, unembed(testing, x, table.view));
}

TEST_CASE("unembed gives the same bytes every time, with any number of threads") {
  const std::int64_t rows = GENERATE(1, 4, 20);
  const HostTable host(DType::kBF16, 1000, 96);
  std::vector<std::vector<float>> results;
  for (const int num_threads : {1, 3, 3}) {
    OpTesting testing(num_threads);
    const Ops::Table table = testing.ops().make_table(host.view(), nullptr);
    results.push_back(unembed(testing, testing.rounded(random_values(rows * 96, 1)), table.view));
  }
  CHECK((results[0] == results[1]));
  CHECK((results[0] == results[2]));
}

TEST_CASE("unembed of no rows does nothing") {
  OpTesting testing;
  const HostTable host(DType::kBF16, 70, 96);
  const Ops::Table table = testing.ops().make_table(host.view(), nullptr);
  CHECK(unembed(testing, {}, table.view).empty());
}

}  // namespace gemmad
