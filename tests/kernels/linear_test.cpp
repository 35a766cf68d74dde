// Products that go on to a bias, an activation and a residual, and products that add up.
#include <algorithm>
#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

struct Sizes {
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
};

struct Products {
  std::vector<double> values;
  std::vector<double> norms;  // |x| |w|, by which errors of the sum are measured
};

Products products(const std::vector<float>& x, const std::vector<float>& w, const Sizes& sizes) {
  Products result;
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    const float* a = x.data() + row * sizes.inputs;
    for (std::int64_t column = 0; column < sizes.outputs; ++column) {
      const float* b = w.data() + column * sizes.inputs;
      double sum = 0;
      double x_squares = 0;
      double w_squares = 0;
      for (std::int64_t i = 0; i < sizes.inputs; ++i) {
        sum += double{a[i]} * b[i];
        x_squares += double{a[i]} * a[i];
        w_squares += double{b[i]} * b[i];
      }
      result.values.push_back(sum);
      result.norms.push_back(std::sqrt(x_squares * w_squares));
    }
  }
  return result;
}

// About sqrt(n) roundings of partial sums below |x| |w|; 4 leaves room. Tensor cores cut off what they add
// instead of rounding it.
double sum_limit(const OpTesting& testing) {
  return (testing.rounding() > 0 ? 16 : 4) * kEps;
}

double gelu(double g) {
  return g / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
}

enum class Add { kNone, kApart, kInPlace };

struct Options {
  bool bias;
  Activation activation;
  Add add;
};

constexpr float kInputDeviation = 0.5f;

// x, w, bias and add of one size, on the host and on the device.
struct Inputs {
  Inputs(OpTesting& testing, const Sizes& sizes)
      : x(testing.rounded(random_values(sizes.rows * sizes.inputs, 1, kInputDeviation))),
        w(testing.rounded(
            random_values(sizes.outputs * sizes.inputs, 2, 2 / std::sqrt(static_cast<float>(sizes.inputs))))),
        bias(testing.rounded(random_values(sizes.outputs, 3, 0.5f))),
        add(testing.rounded(random_values(sizes.rows * sizes.outputs, 4))),
        device_x(testing.put(x, {sizes.rows, sizes.inputs})),
        device_w(testing.put(w, {sizes.outputs, sizes.inputs})),
        device_bias(testing.put(bias, {sizes.outputs})),
        out{sizes.rows, sizes.outputs} {}

  std::vector<float> x, w, bias, add;
  DeviceTensor device_x, device_w, device_bias;
  Shape out;
};

void check_linear(OpTesting& testing, const Inputs& in, const Products& products, const Options& options) {
  CAPTURE(options.bias, options.activation == Activation::kGelu, static_cast<int>(options.add));
  const std::vector<float> nothing(in.add.size(), NAN);
  const DeviceTensor add = testing.put(in.add, in.out);
  const DeviceTensor apart = testing.put(nothing, in.out);
  const TensorView y = options.add == Add::kInPlace ? add.view : apart.view;
  Ops::Linear args{in.device_x.view, in.device_w.view, {}, options.activation, {}, y};
  if (options.bias) args.bias = in.device_bias.view;
  if (options.add != Add::kNone) args.add = add.view;
  testing.ops().linear(args, testing.stream());

  const double rounding = testing.rounding();
  const auto outputs = static_cast<std::size_t>(in.out[1]);
  std::vector<double> expected;
  std::vector<double> limits;
  for (std::size_t i = 0; i < in.add.size(); ++i) {
    const double bias = options.bias ? in.bias[i % outputs] : 0;
    double value = products.values[i] + bias;
    // A device may round what the activation begins and ends with.
    double limit = sum_limit(testing) * products.norms[i] + (2 * kEps + rounding) * std::abs(value);
    if (options.activation == Activation::kGelu) {
      value = gelu(value);
      limit = 1.13 * limit + (16 * kEps + rounding) * std::abs(value) + 1e-11;  // its slope is below 1.13
    }
    if (options.add != Add::kNone) value += in.add[i];
    expected.push_back(value);
    limits.push_back(limit + (kEps + rounding) * std::abs(value));
  }
  CHECK(worst_share(testing.get(y), expected, limits) <= 1);
  if (options.add == Add::kApart) CHECK((testing.get(add.view) == in.add));
}

}  // namespace

TEST_CASE("linear matches double precision with and without bias, activation and addend") {
  const Sizes sizes =
      GENERATE(Sizes{1, 1, 1}, Sizes{1, 96, 96}, Sizes{1, 3840, 33}, Sizes{3, 3840, 17}, Sizes{17, 96, 384},
               Sizes{17, 384, 96}, Sizes{3, 7, 3840}, Sizes{130, 101, 103}, Sizes{130, 96, 30},
               Sizes{130, 3840, 8}, Sizes{600, 33, 31}, Sizes{290, 16, 700});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(sizes.rows, sizes.inputs, sizes.outputs, num_threads);
  OpTesting testing(num_threads);
  const Inputs in(testing, sizes);
  const Products expected = products(in.x, in.w, sizes);
  for (const bool bias : {false, true}) {
    for (const Activation activation : {Activation::kNone, Activation::kGelu}) {
      for (const Add add : {Add::kNone, Add::kApart, Add::kInPlace})
        check_linear(testing, in, expected, {bias, activation, add});
    }
  }
}

TEST_CASE("linear without anything to add is gemm") {
  OpTesting testing;
  const Sizes sizes{37, 96, 72};
  const Inputs in(testing, sizes);
  const DeviceTensor y = testing.empty(in.out);
  const DeviceTensor product = testing.empty(in.out);
  testing.ops().linear({in.device_x.view, in.device_w.view, {}, Activation::kNone, {}, y.view},
                       testing.stream());
  testing.ops().gemm(in.device_x.view, in.device_w.view, product.view, testing.stream());
  const std::vector<float> expected = testing.get(product.view);
  std::vector<double> limits;
  for (float value : expected)
    limits.push_back(2 * sum_limit(testing) * 96 + 2 * testing.rounding() * std::abs(value));
  CHECK(worst_share(testing.get(y.view), {expected.begin(), expected.end()}, limits) <= 1);
}

TEST_CASE("linear of no rows does nothing") {
  OpTesting testing;
  const Inputs in(testing, {0, 8, 5});
  const DeviceTensor y = testing.empty(in.out);
  testing.ops().linear(
      {in.device_x.view, in.device_w.view, in.device_bias.view, Activation::kGelu, {}, y.view},
      testing.stream());
  CHECK(testing.get(y.view).empty());
}

TEST_CASE("gemm_sums over parts of the inputs adds up to the product, in fp32") {
  const Sizes sizes = GENERATE(Sizes{1, 1, 1}, Sizes{1, 96, 40}, Sizes{3, 3840, 17}, Sizes{17, 96, 384},
                               Sizes{130, 101, 103}, Sizes{130, 3840, 8}, Sizes{290, 64, 31});
  const int num_threads = GENERATE(1, 3);
  CAPTURE(sizes.rows, sizes.inputs, sizes.outputs, num_threads);
  constexpr int kParts = 3;
  OpTesting testing(num_threads);
  const DeviceTensor sums =
      testing.put(std::vector<float>(static_cast<std::size_t>(sizes.rows * sizes.outputs), NAN),
                  {sizes.rows, sizes.outputs}, DType::kF32);
  std::vector<double> expected(static_cast<std::size_t>(sizes.rows * sizes.outputs));
  std::vector<double> limits(expected.size());
  for (int part = 0; part < kParts; ++part) {
    const auto seed = static_cast<std::uint64_t>(2 * part);
    const std::vector<float> x = testing.rounded(random_values(sizes.rows * sizes.inputs, seed));
    const std::vector<float> w = testing.rounded(random_values(sizes.outputs * sizes.inputs, seed + 1));
    testing.ops().gemm_sums(testing.put(x, {sizes.rows, sizes.inputs}).view,
                            testing.put(w, {sizes.outputs, sizes.inputs}).view, part > 0, sums.view,
                            testing.stream());
    const Products product = products(x, w, sizes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += product.values[i];
      limits[i] += sum_limit(testing) * product.norms[i] + 4 * kEps * std::abs(expected[i]);
    }
    CHECK(worst_share(testing.get(sums.view), expected, limits) <= 1);
  }
}

}  // namespace gemmad
