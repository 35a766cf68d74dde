#include "daemon/model/text_weights.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace gemmad {
namespace {

HeadLayout head_layout(const TextConfig& config, const Shard& shard) {
  return {shard.heads.size(), shard.kv_heads.size(), config.head_dim};
}

/// The query heads of `shard` that read kv head `kv_head`.
Range queries_of(const TextConfig& config, const Shard& shard, std::int64_t kv_head) {
  const std::int64_t each = config.num_heads / config.num_kv_heads;
  return {std::max(shard.heads.begin, kv_head * each), std::min(shard.heads.end, (kv_head + 1) * each)};
}

// Fills one buffer after another from the source.
class Loader {
 public:
  Loader(const WeightSource& source, const TextConfig& config, const Shard& shard, Ops& ops,
         const LoadProgress& progress)
      : source_(source), config_(config), shard_(shard), ops_(ops), progress_(progress) {
    total_bytes_ = static_cast<std::uint64_t>(shard_size(config, shard).elements) *
                   gemmad::size_bytes(ops.compute_dtype());
  }

  TextWeights load() {
    TextWeights weights;
    weights.layer_range = shard_.layers;
    weights.heads = head_layout(config_, shard_);
    weights.ffn_block = ffn_block(config_);
    weights.ffn_width = shard_.ffn_blocks.size() * weights.ffn_block;
    if (shard_.layers.begin == 0) {
      const HostTensor table = source_.tensor("embed_tokens.weight");
      weights.embedding = std::make_shared<const Ops::Table>(ops_.make_table(table.view, table.owner));
      source_bytes_ += table.view.size_bytes();
    }
    for (std::int64_t layer = shard_.layers.begin; layer < shard_.layers.end; ++layer)
      weights.layers.push_back(load_layer("layers." + std::to_string(layer) + "."));
    if (shard_.layers.end == config_.num_layers) weights.final_norm = vector("norm.weight");
    weights.buffers = std::make_shared<const std::vector<Buffer>>(std::move(buffers_));
    weights.source_bytes = source_bytes_;
    return weights;
  }

 private:
  LayerWeights load_layer(const std::string& prefix) {
    LayerWeights out;
    out.input_norm = vector(prefix + "input_layernorm.weight");
    out.qkv.push_back(fused_heads(prefix + "self_attn."));
    out.q_norm = vector(prefix + "self_attn.q_norm.weight");
    out.k_norm = vector(prefix + "self_attn.k_norm.weight");
    out.o = columns(prefix + "self_attn.o_proj.weight", scaled(shard_.heads, config_.head_dim));
    out.post_attention_norm = vector(prefix + "post_attention_layernorm.weight");
    out.pre_ffn_norm = vector(prefix + "pre_feedforward_layernorm.weight");
    out.gate_up = fused_blocks(prefix + "mlp.");
    out.down = columns(prefix + "mlp.down_proj.weight", scaled(shard_.ffn_blocks, ffn_block(config_)));
    out.post_ffn_norm = vector(prefix + "post_feedforward_layernorm.weight");
    return out;
  }

  ConstTensorView vector(const std::string& name) {
    const HostTensor tensor = source_.tensor(name);
    const TensorView all = make_buffer(tensor.view.shape);
    ops_.upload(all, tensor.view, ops_.stream());
    advance(all.size_bytes(), tensor.view.size_bytes());
    source_.release(tensor);
    return all;
  }

  /// Of each kv head: the rows of its query heads that are of this shard, its key's, its value's.
  ConstMatrixView fused_heads(const std::string& prefix) {
    const HostTensor q = source_.tensor(prefix + "q_proj.weight");
    const HostTensor k = source_.tensor(prefix + "k_proj.weight");
    const HostTensor v = source_.tensor(prefix + "v_proj.weight");
    std::vector<ConstMatrixView> parts;
    for (std::int64_t kv_head = shard_.kv_heads.begin; kv_head < shard_.kv_heads.end; ++kv_head) {
      parts.push_back(rows_of(q, scaled(queries_of(config_, shard_, kv_head), config_.head_dim)));
      parts.push_back(rows_of(k, scaled({kv_head, kv_head + 1}, config_.head_dim)));
      parts.push_back(rows_of(v, scaled({kv_head, kv_head + 1}, config_.head_dim)));
    }
    const TensorView all =
        upload_stack({head_layout(config_, shard_).qkv_width(), config_.hidden_size}, parts);
    for (const HostTensor& tensor : {q, k, v})
      source_.release(tensor);
    return all;
  }

  /// Of each block: its gate rows, then its up rows.
  ConstMatrixView fused_blocks(const std::string& prefix) {
    const HostTensor gate = source_.tensor(prefix + "gate_proj.weight");
    const HostTensor up = source_.tensor(prefix + "up_proj.weight");
    const std::int64_t block = ffn_block(config_);
    std::vector<ConstMatrixView> parts;
    for (std::int64_t b = shard_.ffn_blocks.begin; b < shard_.ffn_blocks.end; ++b) {
      parts.push_back(rows_of(gate, scaled({b, b + 1}, block)));
      parts.push_back(rows_of(up, scaled({b, b + 1}, block)));
    }
    const TensorView all = upload_stack({2 * shard_.ffn_blocks.size() * block, config_.hidden_size}, parts);
    source_.release(gate);
    source_.release(up);
    return all;
  }

  ConstMatrixView columns(const std::string& name, Range range) {
    const HostTensor tensor = source_.tensor(name);
    const ConstMatrixView part = ConstMatrixView(tensor.view).column_range(range.begin, range.end);
    const TensorView all = upload_stack({part.rows, part.columns}, std::span(&part, 1));
    source_.release(tensor);
    return all;
  }

  static ConstMatrixView rows_of(const HostTensor& tensor, Range rows) {
    return ConstMatrixView(tensor.view).row_range(rows.begin, rows.end);
  }

  TensorView upload_stack(const Shape& shape, std::span<const ConstMatrixView> parts) {
    const TensorView all = make_buffer(shape);
    ops_.upload_stack(all, parts, ops_.stream());
    std::uint64_t source_bytes = 0;
    for (const ConstMatrixView& part : parts)
      source_bytes += static_cast<std::uint64_t>(part.rows * part.columns) * gemmad::size_bytes(part.dtype);
    advance(all.size_bytes(), source_bytes);
    return all;
  }

  TensorView make_buffer(const Shape& shape) {
    const DType dtype = ops_.compute_dtype();
    const std::size_t size_bytes = TensorView{nullptr, dtype, shape}.size_bytes();
    return buffers_.emplace_back(ops_.memory(), size_bytes).view(dtype, shape);
  }

  void advance(std::uint64_t device_bytes, std::uint64_t source_bytes) {
    done_bytes_ += device_bytes;
    source_bytes_ += source_bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  static Range scaled(Range range, std::int64_t by) { return {range.begin * by, range.end * by}; }

  const WeightSource& source_;
  const TextConfig& config_;
  const Shard& shard_;
  Ops& ops_;
  const LoadProgress& progress_;
  std::vector<Buffer> buffers_;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t source_bytes_ = 0;
};

/// The rows of the shard's heads in a fused projection of the whole model. A kv head whose query heads are
/// not all of the shard leaves a gap between these and its key.
std::vector<ConstMatrixView> slice_heads(const ConstMatrixView& whole, const HeadLayout& heads,
                                         const TextConfig& config, const Shard& shard) {
  const auto rows = [&](std::int64_t begin, std::int64_t end) { return whole.row_range(begin, end); };
  const std::int64_t group = heads.group_width();
  if (shard.heads.empty()) return {};
  if (shard.heads.size() == shard.kv_heads.size() * heads.queries_per_kv_head())
    return {rows(shard.kv_heads.begin * group, shard.kv_heads.end * group)};
  const std::int64_t kv_head = shard.kv_heads.begin;
  const std::int64_t first = heads.q_column(shard.heads.begin);
  return {rows(first, first + shard.heads.size() * config.head_dim),
          rows(heads.k_column(kv_head), heads.v_column(kv_head) + config.head_dim)};
}

}  // namespace

ActivationWidths activation_widths(const TextConfig& config, const Shard& shard) {
  return {head_layout(config, shard), shard.ffn_blocks.size() * ffn_block(config)};
}

std::uint64_t TextWeights::size_bytes() const {
  std::uint64_t total = embedding ? embedding->storage.size_bytes() : 0;
  if (!buffers) return total;
  for (const Buffer& buffer : *buffers)
    total += buffer.size_bytes();
  return total;
}

TextWeights load_text_weights(const WeightSource& source, const TextConfig& config, const Shard& shard,
                              Ops& ops, const LoadProgress& progress) {
  TextWeights weights = Loader(source, config, shard, ops, progress).load();
  ops.synchronize(ops.stream());
  return weights;
}

TextWeights slice_of(const TextWeights& whole, const TextConfig& config, const Shard& shard) {
  TextWeights slice = whole;
  const std::int64_t s = config.head_dim;
  slice.heads = head_layout(config, shard);
  slice.ffn_width = shard.ffn_blocks.size() * whole.ffn_block;
  const Range columns{shard.ffn_blocks.begin * whole.ffn_block, shard.ffn_blocks.end * whole.ffn_block};
  for (LayerWeights& layer : slice.layers) {
    layer.qkv = slice_heads(layer.qkv.front(), whole.heads, config, shard);
    layer.o = layer.o.column_range(shard.heads.begin * s, shard.heads.end * s);
    layer.gate_up = layer.gate_up.row_range(2 * columns.begin, 2 * columns.end);
    layer.down = layer.down.column_range(columns.begin, columns.end);
  }
  return slice;
}

TextWeights first_layers(const TextWeights& weights, std::int64_t num_layers) {
  TextWeights first = weights;
  first.layer_range.end = std::min(weights.layer_range.end, weights.layer_range.begin + num_layers);
  first.layers.resize(static_cast<std::size_t>(first.layer_range.size()));
  return first;
}

}  // namespace gemmad
