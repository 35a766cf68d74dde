// A vision tower without files, for benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "config/vision_config.h"
#include "daemon/model/random_tensors.h"

namespace gemmad {

/// All tensors of the tower and the projector, of RandomValues: about normal, with deviation 0.02; weights of
/// layer norms as much around 1.
class RandomVision final : public RandomTensors {
 public:
  RandomVision(const VisionConfig& config, std::uint64_t seed, int num_threads);

 private:
  void make(std::string_view name, const Shape& shape, std::uint64_t first,
            std::span<std::uint16_t> to) const override;
};

}  // namespace gemmad
