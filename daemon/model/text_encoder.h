// The Gemma 3 text model as an encoder: token ids in, hidden states out. The whole of it, or one rank's part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "config/model_config.h"
#include "daemon/model/part_links.h"
#include "daemon/model/text_layers.h"
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
  /// i-1, num_layers = output of the last layer after the final norm. `x` [N, D] of the compute type is there
  /// at `ready`. It is overwritten by work put on the device's stream() after the return of the call for the
  /// next index, or by the next forward pass: until then copies may be under way elsewhere, if the sink makes
  /// that stream wait for them in that call. With `is_kept` nothing but the next forward pass overwrites it.
  /// May throw: the forward pass ends there and the encoder stays usable.
  virtual void hidden_state(std::int64_t index, ConstTensorView x, const Moment& ready, bool is_kept) = 0;
};

/// Shares its weights with their other holders. One forward at a time.
class TextEncoder {
 public:
  /// `workspace` is at least as wide as the weights. Keeps references to it and to `ops`.
  TextEncoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace, Ops& ops);

  /// Computes this part's hidden states of `prompts`. Prompts see themselves alone. Rows that the device
  /// fills the batch up with are computed and not handed out. Returns when all work is on ops.stream().
  /// Throws BatchError for no prompt, offsets that do not rise from 0 to N, an empty prompt, one longer than
  /// the workspace's padded_length, more tokens than it has room for, or an id outside [0, V), in every part
  /// alike and before any link is used; and what links and sink throw.
  void forward(const PackedPrompts& prompts, PartLinks& links, HiddenStateSink& sink);

  const TextConfig& config() const { return layers_.config(); }
  const TextWeights& weights() const { return layers_.weights(); }
  /// The index of the first hidden state that comes out of this part; one past the last where none does.
  std::int64_t first_state() const {
    return weights().layer_range.begin == 0 ? 0 : weights().layer_range.begin + 1;
  }
  std::int64_t max_batch_tokens() const { return workspace_.max_batch_tokens(); }

  /// Finds the fastest products for batches of up to `max_rows` (Ops::tune_gemm). Blocks, the first time for
  /// some seconds. Uses no links.
  void tune(std::int64_t max_rows);

 private:
  void check(const PackedPrompts& prompts) const;
  void stage_inputs(const PackedPrompts& prompts, std::int64_t num_rows);
  void run_in_one(const Activations& a, PartLinks& links, HiddenStateSink& sink, std::int64_t num_tokens);
  void run_by_layers(const Activations& a, PartLinks& links, HiddenStateSink& sink, std::int64_t num_tokens);
  ConstTensorView state_of_tokens(std::int64_t index, const Activations& a, std::int64_t num_tokens) const;
  void start(const Activations& a, PartLinks& links);
  void run_layer(std::int64_t layer, const Activations& a, PartLinks& links);

  TextLayers layers_;
  TextWorkspace& workspace_;
  Ops& ops_;
  // By rows of a batch. Step 0 = all, or what comes before the layers; i = layer i - 1.
  std::unique_ptr<Recordings> recordings_;
};

}  // namespace gemmad
