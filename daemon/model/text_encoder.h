// The Gemma 3 text model as an encoder: token ids in, hidden states out. The whole of it, or one rank's part.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "config/model_config.h"
#include "daemon/model/part_links.h"
#include "daemon/model/text_weights.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

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
  /// Called once for each index that this part computes, in order: 0 = scaled embeddings, i = output of layer
  /// i-1, num_layers = output of the last layer after the final norm. `x` [N, D] of the compute type is
  /// overwritten by work put on `stream` after the return; copies of it must go on `stream` too. May throw:
  /// the forward pass ends there and the encoder stays usable.
  virtual void hidden_state(std::int64_t index, ConstTensorView x, Stream stream) = 0;
};

/// Shares its weights with their other holders. One forward at a time; the calling thread blocks.
class TextEncoder {
 public:
  /// `workspace` is at least as wide as the weights. Keeps references to it and to `ops`.
  TextEncoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace, Ops& ops);

  /// Computes this part's hidden states of `prompts`. Allocates nothing. Prompts see themselves alone. Throws
  /// BatchError for no prompt, offsets that do not rise from 0 to N, an empty prompt, one longer than the
  /// workspace's padded_length, more tokens than it has room for, or an id outside [0, V), in every part
  /// alike and before any link is used; and what links and sink throw.
  void forward(const PackedPrompts& prompts, PartLinks& links, HiddenStateSink& sink);

  const TextConfig& config() const { return config_; }
  const TextWeights& weights() const { return weights_; }
  std::int64_t max_batch_tokens() const { return workspace_.max_batch_tokens(); }

 private:
  void check(const PackedPrompts& prompts) const;
  void stage_inputs(const PackedPrompts& prompts, const Activations& a);
  void start(const Activations& a, PartLinks& links, HiddenStateSink& sink);
  void attention_block(std::int64_t layer, const PackedPrompts& prompts, const Activations& a,
                       PartLinks& links);
  void feed_forward_block(std::int64_t layer, const Activations& a, PartLinks& links);
  const LayerWeights& layer_weights(std::int64_t layer) const {
    return weights_.layers[static_cast<std::size_t>(layer - weights_.layer_range.begin)];
  }
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  TextConfig config_;
  TextWeights weights_;
  TextWorkspace& workspace_;
  Ops& ops_;
};

}  // namespace gemmad
