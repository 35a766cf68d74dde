// The Gemma 3 text model as an encoder: token ids in, hidden states out.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "config/model_config.h"
#include "daemon/model/text_weights.h"
#include "kernels/ops.h"

namespace gemmad {

/// Length to which clients pad a prompt on the left. Positions are those of the padded prompt: row i of n has
/// position kPaddedLength - n + i. No padding is computed.
inline constexpr std::int64_t kPaddedLength = 1024;

/// A batch that the encoder does not take. what() says which prompt, what it has and the limit. Nothing was
/// computed.
class BatchError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Prompts one after another, without padding. Does not own.
struct PackedPrompts {
  std::span<const std::int32_t> ids;      // [N]
  std::span<const std::int64_t> offsets;  // [B+1], prompt b = ids[offsets[b], offsets[b+1])
};

/// Takes the hidden states while the forward pass goes on.
class HiddenStateSink {
 public:
  virtual ~HiddenStateSink() = default;
  /// Called once for each index 0 .. num_layers, in order: 0 = scaled embeddings, i = output of layer i-1,
  /// num_layers = output of the last layer after the final norm. `x` [N, D] of the compute type is
  /// overwritten by work put on `stream` after the return; copies of it must go on `stream` too. May throw:
  /// the forward pass ends there and the encoder stays usable.
  virtual void hidden_state(std::int64_t index, ConstTensorView x, Stream stream) = 0;
};

/// Owns the weights and one workspace for `max_batch_tokens` tokens. One forward at a time; the calling
/// thread blocks.
class TextEncoder {
 public:
  /// Keeps a reference to `ops`. `padded_length`: the longest prompt, and the origin of positions. Throws
  /// std::bad_alloc, and std::invalid_argument for limits that are not positive.
  TextEncoder(const TextConfig& config, TextWeights weights, Ops& ops, std::int64_t max_batch_tokens,
              std::int64_t padded_length = kPaddedLength);

  /// Computes all hidden states of `prompts`. Allocates nothing. Prompts see themselves alone. Throws
  /// BatchError for no prompt, offsets that do not rise from 0 to N, an empty prompt, one longer than
  /// padded_length, more than max_batch_tokens tokens, or an id outside [0, V); and what the sink throws.
  void forward(const PackedPrompts& prompts, HiddenStateSink& sink);

  const TextConfig& config() const { return config_; }
  std::int64_t max_batch_tokens() const { return max_batch_tokens_; }
  /// Device memory of the weights and of the workspace (position tables included).
  std::uint64_t weight_bytes() const { return weights_.size_bytes(); }
  std::uint64_t workspace_bytes() const;

 private:
  struct Activations;

  void check(const PackedPrompts& prompts) const;
  void stage_inputs(const PackedPrompts& prompts, const Activations& a);
  void attention_block(std::int64_t layer, const PackedPrompts& prompts, const Activations& a);
  void feed_forward_block(std::int64_t layer, const Activations& a);
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  TextConfig config_;
  TextWeights weights_;
  Ops& ops_;
  std::int64_t max_batch_tokens_;
  std::int64_t padded_length_;
  HeadLayout heads_;
  Buffer workspace_;
  Buffer rope_full_;                     // [padded_length, S]
  Buffer rope_sliding_;                  // [padded_length, S]
  std::vector<std::int32_t> positions_;  // [max_batch_tokens], host
};

}  // namespace gemmad
