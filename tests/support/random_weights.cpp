#include "tests/support/random_weights.h"

#include <cmath>
#include <random>

namespace gemmad {
namespace {

class Generator {
 public:
  Generator(Ops& ops, std::uint64_t seed) : ops_(ops), random_(seed) {}

  ConstTensorView tensor(const Shape& shape, double deviation, std::vector<Buffer>& buffers) {
    std::normal_distribution<float> values(0.0f, static_cast<float>(deviation));
    const TensorView size{nullptr, DType::kF32, shape};
    const TensorView view = buffers.emplace_back(ops_.memory(), size.size_bytes()).view(DType::kF32, shape);
    for (std::int64_t i = 0; i < shape.num_elements(); ++i)
      view.as<float>()[i] = values(random_);
    return view;
  }

 private:
  Ops& ops_;
  std::mt19937_64 random_;
};

}  // namespace

TextWeights random_weights(const TextConfig& config, Ops& ops, std::uint64_t seed) {
  constexpr double kNorm = 0.05;
  Generator generator(ops, seed);
  TextWeights weights;
  std::vector<Buffer>& buffers = weights.buffers;
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.intermediate_size;
  const std::int64_t q = config.num_heads * config.head_dim;
  const std::int64_t qkv = q + 2 * config.num_kv_heads * config.head_dim;
  const auto norm = [&](std::int64_t width) { return generator.tensor({width}, kNorm, buffers); };
  const auto projection = [&](std::int64_t outputs, std::int64_t inputs) {
    return generator.tensor({outputs, inputs}, 1.0 / std::sqrt(static_cast<double>(inputs)), buffers);
  };
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back({norm(d), projection(qkv, d), norm(config.head_dim), norm(config.head_dim),
                              projection(d, q), norm(d), norm(d), projection(2 * f, d), projection(d, f),
                              norm(d)});
  }
  weights.final_norm = norm(d);
  weights.embedding = ops.make_table(generator.tensor({config.vocab_size, d}, kNorm, buffers), nullptr);
  return weights;
}

}  // namespace gemmad
