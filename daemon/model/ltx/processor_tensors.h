// Which tensors an embeddings processor has, under the names that LTX-2's files give them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/processor_config.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Learnable registers of a connector. A sequence is a multiple of as many rows.
inline constexpr std::int64_t kNumRegisters = 128;
/// How many times as wide as a connector its feed-forward is.
inline constexpr std::int64_t kFfnFactor = 4;

struct ProcessorTensor {
  std::string name;  // "text_embedding_projection.aggregate_embed.weight"
  Shape shape;
  bool is_split_by_states = false;  // a projection's weight, of which a stage has the columns of some states
};

/// Of a projection's weight and bias. Column d (layers + 1) + l of the weight is for channel d of hidden
/// state l.
std::string projection_name(const ProcessorConfig& config, std::size_t projection, std::string_view suffix);

/// "model.diffusion_model.video_embeddings_connector.", what a connector's names begin with.
std::string connector_prefix(Modality modality);

/// "CONNECTOR_PREFIXtransformer_1d_blocks.N.", what a block's names begin with.
std::string block_prefix(Modality modality, std::int64_t block);

/// All tensors: projections, then connectors.
std::vector<ProcessorTensor> expected_tensors(const ProcessorConfig& config, const StateSizes& states);

}  // namespace gemmad
