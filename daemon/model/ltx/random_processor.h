// A processor without files, for benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "config/processor_config.h"
#include "daemon/model/random_tensors.h"

namespace gemmad {

/// All tensors of a processor, of RandomValues: about normal, with deviation 0.02; norm weights as much
/// around 1; registers with deviation 1.
class RandomProcessor final : public RandomTensors {
 public:
  /// Throws ConfigError as check_fits does.
  RandomProcessor(const ProcessorConfig& config, const StateSizes& states, std::uint64_t seed,
                  int num_threads);

 private:
  void make(std::string_view name, const Shape& shape, std::uint64_t first,
            std::span<std::uint16_t> to) const override;
};

}  // namespace gemmad
