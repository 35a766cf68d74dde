#include "daemon/model/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/rope_table.h"

namespace gemmad {
namespace {

constexpr std::size_t kAlignmentBytes = 256;

// Hands out places in one buffer, one after another.
class Layout {
 public:
  std::size_t place(DType dtype, const Shape& shape) {
    const std::size_t offset_bytes = end_bytes_;
    const std::size_t size_bytes = TensorView{nullptr, dtype, shape}.size_bytes();
    end_bytes_ += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    return offset_bytes;
  }
  std::size_t end_bytes() const { return end_bytes_; }
  void rewind(std::size_t end_bytes) { end_bytes_ = end_bytes; }

 private:
  std::size_t end_bytes_ = 0;
};

Buffer upload_rope_table(Ops& ops, const RopeConfig& rope, std::int64_t head_dim,
                         std::int64_t num_positions) {
  std::vector<float> table = make_rope_table(rope.theta, rope.factor, head_dim, num_positions);
  const ConstTensorView host{table.data(), DType::kF32, {num_positions, head_dim}};
  Buffer buffer(ops.memory(), TensorView{nullptr, ops.compute_dtype(), host.shape}.size_bytes());
  ops.upload(buffer.view(ops.compute_dtype(), host.shape), host, ops.stream());
  return buffer;
}

}  // namespace

// The workspace cut up for one batch. Attention's part and the feed-forward's share their place: neither
// outlives its block.
struct TextEncoder::Activations {
  TensorView ids;        // [N] I32
  TensorView positions;  // [N] I32
  TensorView x;          // [N, D], the residual stream
  TensorView normed;     // [N, D]
  TensorView branch;     // [N, D], what a block adds
  TensorView qkv;        // [N, (H + 2K) S]
  TensorView mixed;      // [N, H S]
  TensorView gate_up;    // [N, 2F]
  TensorView gated;      // [N, F]
  std::size_t end_bytes = 0;

  // For `num_tokens` of the `max_tokens` that `workspace` has room for; without a workspace only sizes are
  // found.
  Activations(const TextConfig& config, const HeadLayout& heads, DType dtype, std::int64_t num_tokens,
              std::int64_t max_tokens, const Buffer* workspace) {
    Layout layout;
    const auto cut = [&](DType type, std::int64_t width) {
      const std::size_t offset_bytes = layout.place(type, Shape{max_tokens, width});
      const Shape shape = type == DType::kI32 ? Shape{num_tokens} : Shape{num_tokens, width};
      return workspace != nullptr ? workspace->view(type, shape, offset_bytes)
                                  : TensorView{nullptr, type, shape};
    };
    ids = cut(DType::kI32, 1);
    positions = cut(DType::kI32, 1);
    x = cut(dtype, config.hidden_size);
    normed = cut(dtype, config.hidden_size);
    branch = cut(dtype, config.hidden_size);
    const std::size_t shared = layout.end_bytes();
    qkv = cut(dtype, heads.qkv_width());
    mixed = cut(dtype, heads.q_width());
    const std::size_t attention_end = layout.end_bytes();
    layout.rewind(shared);
    gate_up = cut(dtype, 2 * config.intermediate_size);
    gated = cut(dtype, config.intermediate_size);
    end_bytes = std::max(attention_end, layout.end_bytes());
  }
};

TextEncoder::TextEncoder(const TextConfig& config, TextWeights weights, Ops& ops,
                         std::int64_t max_batch_tokens, std::int64_t padded_length)
    : config_(config),
      weights_(std::move(weights)),
      ops_(ops),
      max_batch_tokens_(max_batch_tokens),
      padded_length_(padded_length),
      heads_{config.num_heads, config.num_kv_heads, config.head_dim} {
  if (max_batch_tokens < 1 || padded_length < 1) {
    throw std::invalid_argument("text encoder: max_batch_tokens is " + std::to_string(max_batch_tokens) +
                                ", padded_length is " + std::to_string(padded_length) +
                                ", both must be positive");
  }
  const Activations sizes(config_, heads_, ops.compute_dtype(), max_batch_tokens, max_batch_tokens, nullptr);
  workspace_ = Buffer(ops.memory(), sizes.end_bytes);
  rope_full_ = upload_rope_table(ops, config.rope_full, config.head_dim, padded_length);
  rope_sliding_ = upload_rope_table(ops, config.rope_sliding, config.head_dim, padded_length);
  positions_.resize(static_cast<std::size_t>(max_batch_tokens));
}

std::uint64_t TextEncoder::workspace_bytes() const {
  return workspace_.size_bytes() + rope_full_.size_bytes() + rope_sliding_.size_bytes();
}

void TextEncoder::forward(const PackedPrompts& prompts, HiddenStateSink& sink) {
  check(prompts);
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const Activations a(config_, heads_, ops_.compute_dtype(), num_tokens, max_batch_tokens_, &workspace_);
  const Stream stream = ops_.stream();
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config_.hidden_size)));

  stage_inputs(prompts, a);
  ops_.embed(a.ids, weights_.embedding.view, scale, a.x, stream);
  sink.hidden_state(0, a.x, stream);
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(layer, prompts, a);
    feed_forward_block(layer, a);
    if (layer + 1 < config_.num_layers) sink.hidden_state(layer + 1, a.x, stream);
  }
  ops_.rms_norm(a.x, weights_.final_norm, eps(), a.normed, stream);
  sink.hidden_state(config_.num_layers, a.normed, stream);
}

void TextEncoder::attention_block(std::int64_t layer, const PackedPrompts& prompts, const Activations& a) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const bool sliding = config_.layer_kinds[static_cast<std::size_t>(layer)] == LayerKind::kSliding;
  const Buffer& rope = sliding ? rope_sliding_ : rope_full_;
  const AttentionParams params{heads_, static_cast<float>(config_.score_scale()),
                               sliding ? config_.sliding_window : 0};
  const Stream stream = ops_.stream();

  ops_.rms_norm(a.x, w.input_norm, eps(), a.normed, stream);
  ops_.gemm(a.normed, w.qkv, a.qkv, stream);
  ops_.norm_rope(a.qkv, heads_, w.q_norm, w.k_norm, eps(),
                 rope.view(ops_.compute_dtype(), {padded_length_, heads_.head_dim}), a.positions, stream);
  ops_.attention(a.qkv, prompts.offsets, params, a.mixed, stream);
  ops_.gemm(a.mixed, w.o, a.branch, stream);
  ops_.rms_norm_add(a.branch, w.post_attention_norm, eps(), a.x, stream);
}

void TextEncoder::feed_forward_block(std::int64_t layer, const Activations& a) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const Stream stream = ops_.stream();

  ops_.rms_norm(a.x, w.pre_ffn_norm, eps(), a.normed, stream);
  ops_.gemm(a.normed, w.gate_up, a.gate_up, stream);
  ops_.geglu(a.gate_up, a.gated, stream);
  ops_.gemm(a.gated, w.down, a.branch, stream);
  ops_.rms_norm_add(a.branch, w.post_ffn_norm, eps(), a.x, stream);
}

void TextEncoder::stage_inputs(const PackedPrompts& prompts, const Activations& a) {
  for (std::size_t b = 0; b + 1 < prompts.offsets.size(); ++b) {
    // Positions of the prompt padded on the left: its last token always has the last one.
    for (std::int64_t row = prompts.offsets[b]; row < prompts.offsets[b + 1]; ++row) {
      positions_[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(padded_length_ - prompts.offsets[b + 1] + row);
    }
  }
  const auto upload = [&](const TensorView& to, const std::int32_t* from) {
    ops_.upload(to, {from, DType::kI32, to.shape}, ops_.stream());
  };
  upload(a.ids, prompts.ids.data());
  upload(a.positions, positions_.data());
}

void TextEncoder::check(const PackedPrompts& prompts) const {
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const auto& offsets = prompts.offsets;
  if (offsets.size() < 2 || offsets.front() != 0 || offsets.back() != num_tokens) {
    throw BatchError("a batch needs a prompt, and offsets from 0 to its " + std::to_string(num_tokens) +
                     " tokens");
  }
  if (num_tokens > max_batch_tokens_) {
    throw BatchError("the batch has " + std::to_string(num_tokens) + " tokens, the limit is " +
                     std::to_string(max_batch_tokens_));
  }
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    // Compared before subtracted: hostile offsets must not overflow.
    if (offsets[b + 1] <= offsets[b] || offsets[b + 1] > num_tokens) {
      throw BatchError("prompt " + std::to_string(b) + " is empty or its offsets do not rise");
    }
    if (offsets[b + 1] - offsets[b] > padded_length_) {
      throw BatchError("prompt " + std::to_string(b) + " has " + std::to_string(offsets[b + 1] - offsets[b]) +
                       " tokens, the limit is " + std::to_string(padded_length_));
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
