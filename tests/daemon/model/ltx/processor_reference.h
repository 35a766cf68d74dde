// The embeddings processor evaluated in float64, straight from LTX-2's formulas and by nothing of the
// implementation.
#pragma once

#include <cstdint>
#include <vector>

#include "config/processor_config.h"
#include "daemon/model/weight_source.h"
#include "tests/daemon/model/ltx/processor_testing.h"

namespace gemmad {

struct ReferenceMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;

  double& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

/// [n, C] of one prompt.
ReferenceMatrix reference_features(const WeightSource& weights, const ProcessorConfig& config,
                                   const PackedStates& states, std::size_t prompt, Modality modality);

/// [S, C] of those features.
ReferenceMatrix reference_embeddings(const WeightSource& weights, const ProcessorConfig& config,
                                     const ReferenceMatrix& features, Modality modality,
                                     std::int64_t sequence_length);

/// As F32.
std::vector<float> rounded(const ReferenceMatrix& matrix);

}  // namespace gemmad
