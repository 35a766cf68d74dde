#include "daemon/model/text_encoder.h"

#include <cmath>
#include <string>
#include <utility>

namespace gemmad {

TextEncoder::TextEncoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace, Ops& ops)
    : config_(config), weights_(std::move(weights)), workspace_(workspace), ops_(ops) {}

void TextEncoder::forward(const PackedPrompts& prompts, PartLinks& links, HiddenStateSink& sink) {
  check(prompts);
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const Activations a = workspace_.cut({weights_.heads, weights_.ffn_width}, num_tokens);
  const Stream stream = ops_.stream();

  stage_inputs(prompts, a);
  start(a, links, sink);
  for (std::int64_t layer = weights_.layer_range.begin; layer < weights_.layer_range.end; ++layer) {
    attention_block(layer, prompts, a, links);
    feed_forward_block(layer, a, links);
    if (layer + 1 < config_.num_layers) sink.hidden_state(layer + 1, a.x, stream);
  }
  if (weights_.layer_range.end < config_.num_layers) return links.send(a.x, stream);
  ops_.rms_norm(a.x, weights_.final_norm, eps(), a.normed, stream);
  sink.hidden_state(config_.num_layers, a.normed, stream);
}

void TextEncoder::start(const Activations& a, PartLinks& links, HiddenStateSink& sink) {
  const Stream stream = ops_.stream();
  if (weights_.layer_range.begin > 0) return links.receive(a.x, stream);
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config_.hidden_size)));
  ops_.embed(a.ids, weights_.embedding->view, scale, a.x, stream);
  sink.hidden_state(0, a.x, stream);
}

void TextEncoder::attention_block(std::int64_t layer, const PackedPrompts& prompts, const Activations& a,
                                  PartLinks& links) {
  const LayerWeights& w = layer_weights(layer);
  const HeadLayout& heads = weights_.heads;
  const LayerKind kind = config_.layer_kinds[static_cast<std::size_t>(layer)];
  const Stream stream = ops_.stream();

  // A part without heads has nothing but zeros to add: a product over no columns.
  if (heads.num_heads > 0) {
    const AttentionParams params{heads, static_cast<float>(config_.score_scale()),
                                 kind == LayerKind::kSliding ? config_.sliding_window : 0};
    ops_.rms_norm(a.x, w.input_norm, eps(), a.normed, stream);
    std::int64_t column = 0;
    for (const ConstMatrixView& rows : w.qkv) {
      ops_.gemm(a.normed, rows, MatrixView(a.qkv).column_range(column, column + rows.rows), stream);
      column += rows.rows;
    }
    ops_.norm_rope(a.qkv, heads, w.q_norm, w.k_norm, eps(), workspace_.rope(kind), a.positions, stream);
    ops_.attention(a.qkv, prompts.offsets, params, a.mixed, stream);
  }
  ops_.gemm(a.mixed, w.o, a.branch, stream);
  links.sum_over_slices(a.branch, stream);
  ops_.rms_norm_add(a.branch, w.post_attention_norm, eps(), a.x, stream);
}

void TextEncoder::feed_forward_block(std::int64_t layer, const Activations& a, PartLinks& links) {
  const LayerWeights& w = layer_weights(layer);
  const Stream stream = ops_.stream();

  ops_.rms_norm(a.x, w.pre_ffn_norm, eps(), a.normed, stream);
  ops_.gemm(a.normed, w.gate_up, a.gate_up, stream);
  ops_.geglu(a.gate_up, weights_.ffn_block, a.gated, stream);
  ops_.gemm(a.gated, w.down, a.branch, stream);
  links.sum_over_slices(a.branch, stream);
  ops_.rms_norm_add(a.branch, w.post_ffn_norm, eps(), a.x, stream);
}

void TextEncoder::stage_inputs(const PackedPrompts& prompts, const Activations& a) {
  const std::span<std::int32_t> positions = workspace_.host_positions();
  for (std::size_t b = 0; b + 1 < prompts.offsets.size(); ++b) {
    // Positions of the prompt padded on the left: its last token always has the last one.
    for (std::int64_t row = prompts.offsets[b]; row < prompts.offsets[b + 1]; ++row) {
      positions[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(workspace_.padded_length() - prompts.offsets[b + 1] + row);
    }
  }
  const auto upload = [&](const TensorView& to, const std::int32_t* from) {
    ops_.upload(to, {from, DType::kI32, to.shape}, ops_.stream());
  };
  upload(a.ids, prompts.ids.data());
  upload(a.positions, positions.data());
}

void TextEncoder::check(const PackedPrompts& prompts) const {
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const auto& offsets = prompts.offsets;
  if (offsets.size() < 2 || offsets.front() != 0 || offsets.back() != num_tokens) {
    throw BatchError("a batch needs a prompt, and offsets from 0 to its " + std::to_string(num_tokens) +
                     " tokens");
  }
  if (num_tokens > max_batch_tokens()) {
    throw BatchError("the batch has " + std::to_string(num_tokens) + " tokens, the limit is " +
                     std::to_string(max_batch_tokens()));
  }
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    // Compared before subtracted: hostile offsets must not overflow.
    if (offsets[b + 1] <= offsets[b] || offsets[b + 1] > num_tokens) {
      throw BatchError("prompt " + std::to_string(b) + " is empty or its offsets do not rise");
    }
    if (offsets[b + 1] - offsets[b] > workspace_.padded_length()) {
      throw BatchError("prompt " + std::to_string(b) + " has " + std::to_string(offsets[b + 1] - offsets[b]) +
                       " tokens, the limit is " + std::to_string(workspace_.padded_length()));
    }
  }
  for (std::size_t i = 0; i < prompts.ids.size(); ++i) {
    if (prompts.ids[i] < 0 || prompts.ids[i] >= config_.vocab_size) {
      throw BatchError("token " + std::to_string(i) + " of the batch has id " +
                       std::to_string(prompts.ids[i]) + ", must be in [0, " +
                       std::to_string(config_.vocab_size) + ")");
    }
  }
}

}  // namespace gemmad
