// The weights of the text model, or of one rank's shard of it, on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/shard_plan.h"
#include "config/model_config.h"
#include "daemon/model/text_workspace.h"
#include "daemon/model/weight_filler.h"
#include "daemon/model/weight_source.h"
#include "kernels/ops.h"

namespace gemmad {

/// One decoder layer of a shard with H query heads, K kv heads and F feed-forward columns of its own. Views
/// into TextWeights::memory, of the compute type.
struct LayerWeights {
  ConstTensorView input_norm;           // [D]
  std::vector<ConstMatrixView> qkv;     // on top of each other [(H + 2K) S, D], rows as HeadLayout cuts them
  ConstTensorView q_norm;               // [S]
  ConstTensorView k_norm;               // [S]
  ConstMatrixView o;                    // [D, H S]
  ConstTensorView post_attention_norm;  // [D]
  ConstTensorView pre_ffn_norm;         // [D]
  ConstMatrixView gate_up;              // [2F, D], rows by blocks as Ops::geglu takes them
  ConstMatrixView down;                 // [D, F]
  ConstTensorView post_ffn_norm;        // [D]
};

/// What one rank computes with. Copies share its memory.
struct TextWeights {
  Range layer_range;       // of the model's layers, those in `layers`
  HeadLayout heads;        // own heads; none at all is allowed
  std::int64_t ffn_width;  // own feed-forward columns, F
  std::int64_t ffn_block;  // columns of gate, or of up, that stand together

  std::shared_ptr<const Ops::Table> embedding;  // [V, D]; empty unless the first layer is here
  std::vector<LayerWeights> layers;
  ConstTensorView final_norm;  // [D]; empty unless the last layer is here
  WeightMemory memory;

  /// Bytes of device memory. A table that is read where it lies counts nothing.
  std::uint64_t size_bytes() const;
};

/// The width of `shard`'s activations.
ActivationWidths activation_widths(const TextConfig& config, const Shard& shard);

/// Puts the weights of `shard` into `ops`' memory, in its compute type. Blocks until they are there. `source`
/// may go afterwards (a table read where it lies keeps its owner). Throws what `progress` throws,
/// std::bad_alloc, OpError.
TextWeights load_text_weights(const WeightSource& source, const TextConfig& config, const Shard& shard,
                              Ops& ops, const LoadProgress& progress);

/// The part of `whole`, which holds the whole model, that `shard`, a slice of all layers, holds: the same
/// memory.
TextWeights slice_of(const TextWeights& whole, const TextConfig& config, const Shard& shard);

/// The first layers of `weights`: the same memory.
TextWeights first_layers(const TextWeights& weights, std::int64_t num_layers);

}  // namespace gemmad
