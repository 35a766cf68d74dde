#include <cmath>

#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {

TEST_CASE("gate_heads matches double precision, each head by its own logit") {
  struct Heads {
    std::int64_t count, width;
  };
  const Heads heads =
      GENERATE(Heads{1, 1}, Heads{3, 7}, Heads{3, 32}, Heads{30, 128}, Heads{32, 64}, Heads{2, 256});
  const std::int64_t rows = GENERATE(1, 3, 17, 130);
  const float size = GENERATE(1.0f, 20.0f);
  CAPTURE(heads.count, heads.width, rows, size);
  OpTesting testing;
  const Shape shape{rows, heads.count * heads.width};
  const std::vector<float> x = testing.rounded(random_values(shape.num_elements(), 1));
  const std::vector<float> logits = testing.rounded(random_values(rows * heads.count, 2, size));
  const DeviceTensor device = testing.put(x, shape);
  testing.ops().gate_heads(device.view, testing.put(logits, {rows, heads.count}).view, testing.stream());
  std::vector<double> expected;
  std::vector<double> limits;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected.push_back(2 * x[i] / (1 + std::exp(-double{logits[i / static_cast<std::size_t>(heads.width)]})));
    limits.push_back((8 * kEps + 2.01 * testing.rounding()) * std::abs(expected.back()) + 1e-30);
  }
  CHECK(worst_share(testing.get(device.view), expected, limits) <= 1);
}

TEST_CASE("gate_heads leaves a head at logit 0, doubles it at the top and clears it at the bottom") {
  OpTesting testing;
  const DeviceTensor x = testing.put({3.0f, -5.0f, 3.0f, -5.0f, 3.0f, -5.0f}, {1, 6});
  testing.ops().gate_heads(x.view, testing.put({0.0f, 1e4f, -1e4f}, {1, 3}).view, testing.stream());
  const std::vector<float> actual = testing.get(x.view);
  CHECK(std::vector<float>(actual.begin(), actual.begin() + 4) ==
        std::vector<float>{3.0f, -5.0f, 6.0f, -10.0f});
  CHECK(std::abs(actual[4]) < 1e-30f);
  CHECK(std::abs(actual[5]) < 1e-30f);
}

}  // namespace gemmad
