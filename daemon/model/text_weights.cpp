#include "daemon/model/text_weights.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

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

Range scaled(Range range, std::int64_t by) {
  return {range.begin * by, range.end * by};
}

ConstMatrixView rows_of(const HostTensor& tensor, Range rows) {
  return ConstMatrixView(tensor.view).row_range(rows.begin, rows.end);
}

class Loader {
 public:
  Loader(const WeightSource& source, const TextConfig& config, const Shard& shard, Ops& ops,
         const LoadProgress& progress)
      : config_(config),
        shard_(shard),
        ops_(ops),
        filler_(source, ops,
                static_cast<std::uint64_t>(shard_size(config, shard).elements) *
                    gemmad::size_bytes(ops.compute_dtype()),
                progress) {}

  TextWeights load() {
    TextWeights weights;
    weights.layer_range = shard_.layers;
    weights.heads = head_layout(config_, shard_);
    weights.ffn_block = ffn_block(config_);
    weights.ffn_width = shard_.ffn_blocks.size() * weights.ffn_block;
    if (shard_.layers.begin == 0) weights.embedding = table("embed_tokens.weight");
    for (std::int64_t layer = shard_.layers.begin; layer < shard_.layers.end; ++layer)
      weights.layers.push_back(load_layer("layers." + std::to_string(layer) + "."));
    if (shard_.layers.end == config_.num_layers) weights.final_norm = filler_.whole("norm.weight");
    weights.memory = filler_.finish();
    return weights;
  }

 private:
  std::shared_ptr<const Ops::Table> table(const std::string& name) {
    const HostTensor tensor = filler_.tensor(name);
    auto made = std::make_shared<const Ops::Table>(ops_.make_table(tensor.view, tensor.owner));
    // Not released: it may be read where it lies.
    filler_.count_taken(tensor.view.size_bytes());
    return made;
  }

  LayerWeights load_layer(const std::string& prefix) {
    LayerWeights out;
    out.input_norm = filler_.whole(prefix + "input_layernorm.weight");
    out.qkv.push_back(fused_heads(prefix + "self_attn."));
    out.q_norm = filler_.whole(prefix + "self_attn.q_norm.weight");
    out.k_norm = filler_.whole(prefix + "self_attn.k_norm.weight");
    out.o = columns(prefix + "self_attn.o_proj.weight", scaled(shard_.heads, config_.head_dim));
    out.post_attention_norm = filler_.whole(prefix + "post_attention_layernorm.weight");
    out.pre_ffn_norm = filler_.whole(prefix + "pre_feedforward_layernorm.weight");
    out.gate_up = fused_blocks(prefix + "mlp.");
    out.down = columns(prefix + "mlp.down_proj.weight", scaled(shard_.ffn_blocks, ffn_block(config_)));
    out.post_ffn_norm = filler_.whole(prefix + "post_feedforward_layernorm.weight");
    return out;
  }

  /// Of each kv head: the rows of its query heads that are of this shard, its key's, its value's.
  ConstMatrixView fused_heads(const std::string& prefix) {
    const HostTensor q = filler_.tensor(prefix + "q_proj.weight");
    const HostTensor k = filler_.tensor(prefix + "k_proj.weight");
    const HostTensor v = filler_.tensor(prefix + "v_proj.weight");
    std::vector<ConstMatrixView> parts;
    for (std::int64_t kv_head = shard_.kv_heads.begin; kv_head < shard_.kv_heads.end; ++kv_head) {
      parts.push_back(rows_of(q, scaled(queries_of(config_, shard_, kv_head), config_.head_dim)));
      parts.push_back(rows_of(k, scaled({kv_head, kv_head + 1}, config_.head_dim)));
      parts.push_back(rows_of(v, scaled({kv_head, kv_head + 1}, config_.head_dim)));
    }
    const std::int64_t num_rows = head_layout(config_, shard_).qkv_width();
    return stack({num_rows, config_.hidden_size}, parts, {q, k, v});
  }

  /// Of each block: its gate rows, then its up rows.
  ConstMatrixView fused_blocks(const std::string& prefix) {
    const HostTensor gate = filler_.tensor(prefix + "gate_proj.weight");
    const HostTensor up = filler_.tensor(prefix + "up_proj.weight");
    const std::int64_t block = ffn_block(config_);
    std::vector<ConstMatrixView> parts;
    for (std::int64_t b = shard_.ffn_blocks.begin; b < shard_.ffn_blocks.end; ++b) {
      parts.push_back(rows_of(gate, scaled({b, b + 1}, block)));
      parts.push_back(rows_of(up, scaled({b, b + 1}, block)));
    }
    return stack({2 * shard_.ffn_blocks.size() * block, config_.hidden_size}, parts, {gate, up});
  }

  ConstMatrixView columns(const std::string& name, Range range) {
    const HostTensor tensor = filler_.tensor(name);
    const ConstMatrixView part = ConstMatrixView(tensor.view).column_range(range.begin, range.end);
    return stack({part.rows, part.columns}, std::span(&part, 1), {tensor});
  }

  /// `parts` of `tensors`, which are not needed any more then.
  ConstMatrixView stack(const Shape& shape, std::span<const ConstMatrixView> parts,
                        std::initializer_list<HostTensor> tensors) {
    const TensorView all = filler_.put_stack(shape, parts);
    for (const ConstMatrixView& part : parts)
      filler_.count_taken(static_cast<std::uint64_t>(part.rows * part.columns) *
                          gemmad::size_bytes(part.dtype));
    for (const HostTensor& tensor : tensors)
      filler_.release(tensor);
    return all;
  }

  const TextConfig& config_;
  const Shard& shard_;
  Ops& ops_;
  WeightFiller filler_;
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
  return memory.size_bytes() + (embedding ? embedding->storage.size_bytes() : 0);
}

TextWeights load_text_weights(const WeightSource& source, const TextConfig& config, const Shard& shard,
                              Ops& ops, const LoadProgress& progress) {
  return Loader(source, config, shard, ops, progress).load();
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
