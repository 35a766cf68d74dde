// A text model without files, for benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "config/model_config.h"
#include "daemon/model/random_tensors.h"

namespace gemmad {

/// All text tensors of a model: projections and the embedding table of RandomValues, norms of zeros (which
/// scale by 1).
class RandomWeights final : public RandomTensors {
 public:
  RandomWeights(const TextConfig& config, std::uint64_t seed, int num_threads);

 private:
  void make(std::string_view name, const Shape& shape, std::uint64_t first,
            std::span<std::uint16_t> to) const override;
};

}  // namespace gemmad
