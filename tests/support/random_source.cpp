#include "tests/support/random_source.h"

#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "daemon/model/tensor_names.h"

namespace gemmad {
namespace {

std::mt19937_64 generator(std::uint64_t seed, const std::string& name) {
  std::vector<std::uint32_t> words(name.begin(), name.end());
  words.push_back(static_cast<std::uint32_t>(seed));
  words.push_back(static_cast<std::uint32_t>(seed >> 32));
  std::seed_seq sequence(words.begin(), words.end());
  return std::mt19937_64(sequence);
}

double deviation(const ExpectedTensor& tensor) {
  constexpr double kNormOrTable = 0.05;
  const bool is_projection = tensor.shape.rank() == 2 && tensor.name != "embed_tokens.weight";
  return is_projection ? 1.0 / std::sqrt(static_cast<double>(tensor.shape[1])) : kNormOrTable;
}

}  // namespace

RandomSource::RandomSource(const TextConfig& config, std::uint64_t seed) {
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::mt19937_64 random = generator(seed, tensor.name);
    std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation(tensor)));
    const auto values =
        std::make_shared<std::vector<float>>(static_cast<std::size_t>(tensor.shape.num_elements()));
    for (float& value : *values)
      value = normal(random);
    const HostTensor host{{values->data(), DType::kF32, tensor.shape}, values};
    size_bytes_ += host.view.size_bytes();
    tensors_.emplace(tensor.name, host);
  }
}

HostTensor RandomSource::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::out_of_range("no tensor '" + std::string(name) + "'");
  return found->second;
}

}  // namespace gemmad
