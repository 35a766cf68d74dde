#include "daemon/model/text_layers.h"

#include <cmath>
#include <utility>

namespace gemmad {

TextLayers::TextLayers(const TextConfig& config, TextWeights weights, Ops& ops)
    : config_(config), weights_(std::move(weights)), ops_(ops) {}

void TextLayers::fill(const Activations& a, PartLinks& links) {
  const TensorView x = a.state(weights_.layer_range.begin);
  if (weights_.layer_range.begin > 0) return links.receive(x, ops_.stream());
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config_.hidden_size)));
  ops_.embed(a.ids, weights_.embedding->view, scale, x, ops_.stream());
}

void TextLayers::start(const Activations& a) {
  const Range layers = weights_.layer_range;
  if (layers.empty()) return;
  ops_.rms_norm(a.state(layers.begin), layer_weights(layers.begin).input_norm, eps(), a.normed,
                ops_.stream());
}

void TextLayers::run(std::int64_t layer, const Activations& a, PartLinks& links, RowAttention& attention) {
  const LayerWeights& w = layer_weights(layer);
  const Stream stream = ops_.stream();
  const TensorView x_in = a.state(layer);
  const TensorView x = a.state(layer + 1);

  // A part without heads has nothing but zeros to add: a product over no columns.
  if (weights_.heads.num_heads > 0) attend(layer, a, attention);
  const TensorView mixed = links.addend(a.branch, 0);
  ops_.gemm(a.mixed, w.o, mixed, stream);
  const PeerAddends* peers = links.sum_over_slices(mixed, 0, stream);
  ops_.add_norm({mixed, peers, w.post_attention_norm, x_in, x, w.pre_ffn_norm, a.normed, eps()}, stream);

  ops_.gemm_geglu(a.normed, w.gate_up, weights_.ffn_block, a.gate_up, a.gated, stream);
  const TensorView fed = links.addend(a.branch, 1);
  ops_.gemm(a.gated, w.down, fed, stream);
  peers = links.sum_over_slices(fed, 1, stream);
  const ConstTensorView next = next_norm(layer);
  const TensorView normed = next.data != nullptr ? a.normed : TensorView{};
  ops_.add_norm({fed, peers, w.post_ffn_norm, x, x, next, normed, eps()}, stream);
}

void TextLayers::attend(std::int64_t layer, const Activations& a, RowAttention& attention) {
  const LayerWeights& w = layer_weights(layer);
  const HeadLayout& heads = weights_.heads;
  const LayerKind kind = config_.layer_kinds[static_cast<std::size_t>(layer)];
  const Stream stream = ops_.stream();
  const AttentionParams params{heads, static_cast<float>(config_.score_scale()),
                               kind == LayerKind::kSliding ? config_.sliding_window : 0};
  std::int64_t column = 0;
  for (const ConstMatrixView& rows : w.qkv) {
    ops_.gemm(a.normed, rows, MatrixView(a.qkv).column_range(column, column + rows.rows), stream);
    column += rows.rows;
  }
  ops_.norm_rope(a.qkv, heads, w.q_norm, w.k_norm, eps(), attention.rope(kind), a.positions, stream);
  attention.attend(layer, a.qkv, params, a.mixed);
}

/// What normalises the residual stream behind `layer`; no data where another part does.
ConstTensorView TextLayers::next_norm(std::int64_t layer) const {
  if (layer + 1 < weights_.layer_range.end) return layer_weights(layer + 1).input_norm;
  return layer + 1 == config_.num_layers ? weights_.final_norm : ConstTensorView{};
}

}  // namespace gemmad
