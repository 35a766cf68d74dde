#include "daemon/model/random_weights.h"

#include <algorithm>

#include "daemon/model/tensor_names.h"

namespace gemmad {

RandomWeights::RandomWeights(const TextConfig& config, std::uint64_t seed, int num_threads)
    : RandomTensors(seed, num_threads) {
  for (const ExpectedTensor& tensor : expected_tensors(config))
    add(tensor.name, tensor.shape);
}

void RandomWeights::make(std::string_view name, const Shape& shape, std::uint64_t first,
                         std::span<std::uint16_t> to) const {
  if (shape.rank() != 1) return fill(name, first, to);
  std::fill(to.begin(), to.end(), std::uint16_t{0});
}

}  // namespace gemmad
