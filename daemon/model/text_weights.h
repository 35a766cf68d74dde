// The weights of the text model, on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/model/model_files.h"
#include "kernels/ops.h"

namespace gemmad {

/// One decoder layer. Views into TextWeights::buffers, of the compute type.
struct LayerWeights {
  ConstTensorView input_norm;           // [D]
  ConstTensorView qkv;                  // [(H + 2K) S, D], rows q | k | v
  ConstTensorView q_norm;               // [S]
  ConstTensorView k_norm;               // [S]
  ConstTensorView o;                    // [D, H S]
  ConstTensorView post_attention_norm;  // [D]
  ConstTensorView pre_ffn_norm;         // [D]
  ConstTensorView gate_up;              // [2F, D], rows gate | up
  ConstTensorView down;                 // [D, F]
  ConstTensorView post_ffn_norm;        // [D]
};

/// Owns the weights. Movable; the views stay valid.
struct TextWeights {
  Ops::Table embedding;  // [V, D], in the file's type where the device can read it there
  std::vector<LayerWeights> layers;
  ConstTensorView final_norm;   // [D]
  std::vector<Buffer> buffers;  // what the views above show

  /// Bytes of device memory owned here. A table that stays in the mapped file counts nothing.
  std::uint64_t size_bytes() const;
};

/// Called after every tensor with the file bytes done and in all; at the end they are equal. May throw, to
/// give up.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Reads the weights into `ops`' memory, in its compute type. Blocks until they are there. `files` may go
/// afterwards (a table read in place keeps its own mapping). Throws what `progress` throws, std::bad_alloc,
/// OpError.
TextWeights load_text_weights(const ModelFiles& files, Ops& ops, const LoadProgress& progress);

}  // namespace gemmad
