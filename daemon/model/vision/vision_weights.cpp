#include "daemon/model/vision/vision_weights.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "daemon/model/vision/vision_tensors.h"

namespace gemmad {
namespace {

/// A tensor in another order, on the host. Elements are copied by bytes: a tensor of a mapped file need not
/// be aligned.
class HostMatrix {
 public:
  /// All zeros.
  HostMatrix(DType dtype, std::int64_t rows, std::int64_t columns)
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        bytes_(static_cast<std::size_t>(rows * columns) * gemmad::size_bytes(dtype)) {}

  std::byte* at(std::int64_t row, std::int64_t column) {
    return bytes_.data() + static_cast<std::size_t>(row * columns_ + column) * gemmad::size_bytes(dtype_);
  }
  ConstTensorView view() const { return {bytes_.data(), dtype_, {rows_, columns_}}; }

 private:
  DType dtype_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<std::byte> bytes_;
};

/// `from` [rows, columns] with zeros behind each row.
HostMatrix with_padded_rows(const ConstTensorView& from, std::int64_t rows, std::int64_t columns,
                            std::int64_t padded_columns) {
  HostMatrix to(from.dtype, rows, padded_columns);
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * gemmad::size_bytes(from.dtype);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(to.at(row, 0), from.as<std::byte>() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  return to;
}

HostMatrix transposed(const ConstTensorView& from) {
  HostMatrix to(from.dtype, from.shape[1], from.shape[0]);
  const std::size_t element_bytes = gemmad::size_bytes(from.dtype);
  const std::byte* next = from.as<std::byte>();
  for (std::int64_t row = 0; row < from.shape[0]; ++row) {
    for (std::int64_t column = 0; column < from.shape[1]; ++column, next += element_bytes)
      std::memcpy(to.at(column, row), next, element_bytes);
  }
  return to;
}

class Loader {
 public:
  Loader(const WeightSource& source, const VisionConfig& config, const HeadLayout& heads, Ops& ops,
         const LoadProgress& progress)
      : config_(config),
        heads_(heads),
        filler_(source, ops, VisionWeights::size_bytes(config, heads, ops.compute_dtype()), progress) {}

  VisionWeights load() {
    VisionWeights weights;
    weights.heads = heads_;
    weights.patch = patch("vision_tower.embeddings.patch_embedding.weight");
    weights.patch_bias = filler_.whole("vision_tower.embeddings.patch_embedding.bias");
    weights.positions = filler_.whole("vision_tower.embeddings.position_embedding.weight");
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer)
      weights.layers.push_back(load_layer(vision_layer_prefix(layer)));
    weights.last_norm = filler_.whole("vision_tower.post_layernorm.weight");
    weights.last_norm_bias = filler_.whole("vision_tower.post_layernorm.bias");
    weights.projector_norm = filler_.whole("multi_modal_projector.mm_soft_emb_norm.weight");
    weights.projector = projector("multi_modal_projector.mm_input_projection_weight");
    weights.memory = filler_.finish();
    return weights;
  }

 private:
  VisionLayer load_layer(const std::string& prefix) {
    VisionLayer out;
    out.norm1 = filler_.whole(prefix + "layer_norm1.weight");
    out.norm1_bias = filler_.whole(prefix + "layer_norm1.bias");
    out.qkv = fused_heads(prefix + "self_attn.", ".weight");
    out.qkv_bias = fused_heads(prefix + "self_attn.", ".bias");
    out.out = out_projection(prefix + "self_attn.out_proj.weight");
    out.out_bias = filler_.whole(prefix + "self_attn.out_proj.bias");
    out.norm2 = filler_.whole(prefix + "layer_norm2.weight");
    out.norm2_bias = filler_.whole(prefix + "layer_norm2.bias");
    out.up = filler_.whole(prefix + "mlp.fc1.weight");
    out.up_bias = filler_.whole(prefix + "mlp.fc1.bias");
    out.down = filler_.whole(prefix + "mlp.fc2.weight");
    out.down_bias = filler_.whole(prefix + "mlp.fc2.bias");
    return out;
  }

  ConstTensorView patch(const std::string& name) {
    const HostTensor tensor = filler_.tensor(name);
    const HostMatrix padded = with_padded_rows(tensor.view, config_.hidden_size, config_.patch_width(),
                                               padded_patch_width(config_));
    const ConstTensorView there = filler_.put(padded.view());
    filler_.release_whole(tensor);
    return there;
  }

  ConstTensorView projector(const std::string& name) {
    const HostTensor tensor = filler_.tensor(name);
    const ConstTensorView there = filler_.put(transposed(tensor.view).view());
    filler_.release_whole(tensor);
    return there;
  }

  /// [C, C], the columns of each head filled up.
  ConstTensorView out_projection(const std::string& name) {
    const HostTensor tensor = filler_.tensor(name);
    const HostMatrix padded = with_padded_rows(tensor.view, config_.hidden_size * config_.num_heads,
                                               config_.head_dim(), heads_.head_dim);
    ConstTensorView there = filler_.put(padded.view());
    there.shape = {config_.hidden_size, heads_.q_width()};
    filler_.release_whole(tensor);
    return there;
  }

  /// Of each head: the rows (elements, of a bias) of its query, its key, its value, each filled up.
  ConstTensorView fused_heads(const std::string& prefix, const std::string& suffix) {
    const std::array<HostTensor, 3> tensors = {filler_.tensor(prefix + "q_proj" + suffix),
                                               filler_.tensor(prefix + "k_proj" + suffix),
                                               filler_.tensor(prefix + "v_proj" + suffix)};
    const bool is_bias = tensors[0].view.shape.rank() == 1;
    const std::int64_t columns = is_bias ? 1 : config_.hidden_size;
    const std::int64_t rows = config_.head_dim();
    const HostMatrix zeros(DType::kF32, heads_.head_dim - rows, columns);
    std::vector<ConstMatrixView> parts;
    for (std::int64_t head = 0; head < config_.num_heads; ++head) {
      for (const HostTensor& tensor : tensors) {
        const ConstTensorView all{tensor.view.data, tensor.view.dtype, {config_.hidden_size, columns}};
        parts.push_back(ConstMatrixView(all).row_range(head * rows, (head + 1) * rows));
        if (heads_.head_dim > rows) parts.push_back(zeros.view());
      }
    }
    const TensorView fused = filler_.put_stack({heads_.qkv_width(), columns}, parts);
    for (const HostTensor& tensor : tensors)
      filler_.release_whole(tensor);
    return is_bias ? ConstTensorView{fused.data, fused.dtype, {heads_.qkv_width()}} : fused;
  }

  const VisionConfig& config_;
  const HeadLayout& heads_;
  WeightFiller filler_;
};

}  // namespace

HeadLayout vision_heads(const VisionConfig& config, const Device& device) {
  return {config.num_heads, config.num_heads, device.padded_head_dim(config.head_dim())};
}

std::int64_t padded_patch_width(const VisionConfig& config) {
  return (config.patch_width() + 7) / 8 * 8;
}

std::uint64_t VisionWeights::size_bytes(const VisionConfig& config, const HeadLayout& heads,
                                        DType compute_dtype) {
  std::int64_t elements = config.hidden_size * (padded_patch_width(config) - config.patch_width());
  for (const ExpectedTensor& tensor : expected_tensors(config))
    elements += tensor.shape.num_elements();
  // Of each layer: the rows and biases of queries, keys and values, and the columns of what follows.
  const std::int64_t added = config.num_heads * (heads.head_dim - config.head_dim());
  elements += config.num_layers * added * (3 * (config.hidden_size + 1) + config.hidden_size);
  return static_cast<std::uint64_t>(elements) * gemmad::size_bytes(compute_dtype);
}

VisionWeights load_vision_weights(const WeightSource& source, const VisionConfig& config,
                                  const HeadLayout& heads, Ops& ops, const LoadProgress& progress) {
  return Loader(source, config, heads, ops, progress).load();
}

}  // namespace gemmad
