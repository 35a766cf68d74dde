// The decoder layers of one part of the Gemma 3 text model, whatever its rows attend to.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "daemon/model/part_links.h"
#include "daemon/model/text_weights.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// What the rows of a pass see of each other and of the past.
class RowAttention {
 public:
  virtual ~RowAttention() = default;
  /// [P, S], for Ops::norm_rope, at the positions of the pass.
  virtual ConstTensorView rope(LayerKind kind) const = 0;
  /// out [N, H S] := attention of the rows of `qkv`, whose queries and keys are ready, in `layer`.
  virtual void attend(std::int64_t layer, ConstTensorView qkv, const AttentionParams& params,
                      TensorView out) = 0;
};

/// All work goes on ops.stream(); nothing is kept between calls, so that it may be recorded.
class TextLayers {
 public:
  /// Keeps a reference to `ops`.
  TextLayers(const TextConfig& config, TextWeights weights, Ops& ops);

  /// Fills the residual stream in front of this part's layers, a.state(layer_range.begin): from a.ids where
  /// the first layer is here, else from the part before.
  void fill(const Activations& a, PartLinks& links);
  /// The norm that the first layer begins with: from there to a.normed. Nothing where no layer is here.
  void start(const Activations& a);
  /// From a.normed and a.state(layer) to a.state(layer + 1) and, for what comes next, a.normed.
  void run(std::int64_t layer, const Activations& a, PartLinks& links, RowAttention& attention);

  const TextConfig& config() const { return config_; }
  const TextWeights& weights() const { return weights_; }
  ActivationWidths widths() const { return {weights_.heads, weights_.ffn_width}; }

 private:
  void attend(std::int64_t layer, const Activations& a, RowAttention& attention);
  ConstTensorView next_norm(std::int64_t layer) const;
  const LayerWeights& layer_weights(std::int64_t layer) const {
    return weights_.layers[static_cast<std::size_t>(layer - weights_.layer_range.begin)];
  }
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  TextConfig config_;
  TextWeights weights_;
  Ops& ops_;
};

}  // namespace gemmad
