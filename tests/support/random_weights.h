// Models without files.
#pragma once

#include <cstdint>

#include "daemon/model/text_weights.h"

namespace gemmad {

/// Weights of the shapes that `config` gives, seeded: projections with values of about 1 / sqrt(inputs), so
/// that activations keep their size through the layers; norms and embeddings around 0.05. The table is fp32
/// in `ops`' memory. `ops` must be the CPU's.
TextWeights random_weights(const TextConfig& config, Ops& ops, std::uint64_t seed);

}  // namespace gemmad
