// The weights of an embeddings processor, or of the part of it that one stage needs, on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/shard_plan.h"
#include "config/processor_config.h"
#include "daemon/model/weight_filler.h"
#include "daemon/model/weight_source.h"
#include "kernels/ops.h"

namespace gemmad {

/// What a stage holds: the projections' columns for some hidden states and, the last stage, what follows the
/// sums: biases and connectors.
struct ProcessorShare {
  Range states;
  bool has_connectors = true;

  bool operator==(const ProcessorShare&) const = default;
};

/// The share that is the whole processor.
ProcessorShare whole_processor(const StateSizes& states);

// Views into ProcessorWeights::memory, of the compute type.

struct ProjectionWeights {
  std::vector<ConstTensorView> states;  // [C, D] for each hidden state of the share
  ConstTensorView bias;                 // [C]; no data in V1, and in shares without connectors
};

struct ConnectorBlock {
  ConstTensorView qkv;        // [3C, C], rows by heads as HeadLayout cuts them with as many kv heads as heads
  ConstTensorView qkv_bias;   // [3C], likewise
  ConstTensorView q_norm;     // [C]
  ConstTensorView k_norm;     // [C]
  ConstTensorView gate;       // [H, C]; no data where there are no gates
  ConstTensorView gate_bias;  // [H]; likewise
  ConstTensorView out;        // [C, C]
  ConstTensorView out_bias;   // [C]
  ConstTensorView up;         // [4C, C]
  ConstTensorView up_bias;    // [4C]; no data where the feed-forward has no biases
  ConstTensorView down;       // [C, 4C]
  ConstTensorView down_bias;  // [C]; likewise
};

struct ConnectorWeights {
  ConstTensorView registers;  // [kNumRegisters, C]
  std::vector<ConnectorBlock> blocks;
};

/// Copies share its memory.
struct ProcessorWeights {
  ProcessorShare share;
  std::vector<ProjectionWeights> projections;  // V1: one; V2: video, audio
  std::vector<ConnectorWeights> connectors;    // video, audio; none in shares without connectors
  WeightMemory memory;

  const ConnectorWeights& connector(Modality modality) const {
    return connectors.at(static_cast<std::size_t>(modality));
  }
  /// Bytes of device memory that there will be.
  static std::uint64_t size_bytes(const ProcessorConfig& config, const StateSizes& states,
                                  const ProcessorShare& share, DType compute_dtype);
};

/// Puts `share` into `ops`' memory, in its compute type. Takes the projections apart by hidden state on
/// `num_threads` threads, some rows at a time. Blocks until the weights are there. `source` may go
/// afterwards. Throws what `progress` throws, std::bad_alloc, std::system_error when no thread can be
/// started, OpError.
ProcessorWeights load_processor_weights(const WeightSource& source, const ProcessorConfig& config,
                                        const StateSizes& states, const ProcessorShare& share, Ops& ops,
                                        int num_threads, const LoadProgress& progress);

}  // namespace gemmad
