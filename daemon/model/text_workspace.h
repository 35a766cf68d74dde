// The memory that a forward pass works in: allocated once, cut up anew for every batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "kernels/ops.h"

namespace gemmad {

/// Length to which clients pad a prompt on the left. Positions are those of the padded prompt: row i of n has
/// position kPaddedLength - n + i. No padding is computed.
inline constexpr std::int64_t kPaddedLength = 1024;

/// One batch's places for N rows. Attention's part and the feed-forward's share theirs: neither outlives its
/// block.
struct Activations {
  TensorView ids;        // [N] I32
  TensorView positions;  // [N] I32
  TensorView begins;     // [N] I32, as Ops::attention takes them
  TensorView states;     // [places of states, N, D], for state()
  TensorView normed;     // [N, D]
  TensorView branch;     // [N, D], what a block adds
  TensorView qkv;        // [N, (H + 2K) S]
  TensorView mixed;      // [N, H S]
  TensorView gate_up;    // [N, 2F]
  TensorView gated;      // [N, F]

  /// The residual stream where hidden state `index` comes to lie, [N, D]: a place of its own where there are
  /// as many, else that of the state before the last.
  TensorView state(std::int64_t index) const;
};

/// How wide a rank's share of the activations is.
struct ActivationWidths {
  HeadLayout heads;
  std::int64_t ffn_width = 0;  // F
};

/// Owns the memory and the tables of positions. Used by one forward pass at a time.
class TextWorkspace {
 public:
  /// For batches of `max_batch_tokens` tokens, no wider than `widest`. `padded_length`: the longest prompt,
  /// and the origin of positions. Keeps ops.memory(). Throws std::bad_alloc, and std::invalid_argument for
  /// limits that are not positive.
  TextWorkspace(const TextConfig& config, const ActivationWidths& widest, Ops& ops,
                std::int64_t max_batch_tokens, std::int64_t padded_length = kPaddedLength);

  /// The places of a batch of `num_rows`, at most max_rows(). They are the same ones for the same number.
  Activations cut(const ActivationWidths& widths, std::int64_t num_rows) const;
  /// [padded_length, S], for Ops::norm_rope.
  ConstTensorView rope(LayerKind kind) const;
  /// Room on the host for a batch's ids, positions and begins, [max_rows()] each, in the device's order.
  std::span<std::int32_t> host_inputs() { return host_inputs_; }
  /// Where the device keeps those of a batch of `num_rows`: [3 max_rows()] I32.
  TensorView inputs() const;

  /// True when a batch of `num_rows` has a place for each of its hidden states.
  bool keeps_states(std::int64_t num_rows) const { return num_places(num_rows) > 2; }

  std::int64_t max_batch_tokens() const { return max_batch_tokens_; }
  /// Tokens, and what the device fills them up with.
  std::int64_t max_rows() const { return max_rows_; }
  std::int64_t padded_length() const { return padded_length_; }
  std::uint64_t size_bytes() const;

  /// What size_bytes() will be, before there is one.
  static std::uint64_t size_bytes(const TextConfig& config, const ActivationWidths& widest, const Ops& ops,
                                  std::int64_t max_batch_tokens, std::int64_t padded_length = kPaddedLength);

 private:
  std::int64_t num_places(std::int64_t num_rows) const;

  std::int64_t hidden_size_;
  std::int64_t num_states_;      // hidden states of the model
  std::int64_t state_rows_ = 0;  // for all places of states together
  DType dtype_;
  std::int64_t max_batch_tokens_;
  std::int64_t max_rows_;
  std::int64_t padded_length_;
  Shape rope_shape_;
  Buffer memory_;
  Buffer rope_full_;
  Buffer rope_sliding_;
  std::vector<std::int32_t> host_inputs_;
};

}  // namespace gemmad
