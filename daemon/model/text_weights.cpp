#include "daemon/model/text_weights.h"

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "daemon/model/checkpoint.h"

namespace gemmad {
namespace {

// Fills one buffer after another from the checkpoint.
class Loader {
 public:
  Loader(const ModelFiles& files, Ops& ops, const LoadProgress& progress)
      : files_(files), ops_(ops), progress_(progress) {}

  TextWeights load() {
    load_table();
    for (std::int64_t layer = 0; layer < files_.config().num_layers; ++layer)
      load_layer(layer);
    weights_.final_norm = stack({"norm.weight"});
    return std::move(weights_);
  }

 private:
  void load_table() {
    const CheckpointTensor& table = files_.checkpoint().tensor("embed_tokens.weight");
    table.file->prefetch_pages(bytes_of(table));
    weights_.embedding = ops_.make_table(table.view, table.file);
    advance(table);
  }

  void load_layer(std::int64_t layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    LayerWeights out;
    out.input_norm = stack({prefix + "input_layernorm.weight"});
    out.qkv = stack({prefix + "self_attn.q_proj.weight", prefix + "self_attn.k_proj.weight",
                     prefix + "self_attn.v_proj.weight"});
    out.q_norm = stack({prefix + "self_attn.q_norm.weight"});
    out.k_norm = stack({prefix + "self_attn.k_norm.weight"});
    out.o = stack({prefix + "self_attn.o_proj.weight"});
    out.post_attention_norm = stack({prefix + "post_attention_layernorm.weight"});
    out.pre_ffn_norm = stack({prefix + "pre_feedforward_layernorm.weight"});
    out.gate_up = stack({prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"});
    out.down = stack({prefix + "mlp.down_proj.weight"});
    out.post_ffn_norm = stack({prefix + "post_feedforward_layernorm.weight"});
    weights_.layers.push_back(out);
  }

  // Puts tensors on top of each other along their first axis, in a buffer of their own.
  ConstTensorView stack(const std::vector<std::string>& names) {
    Shape shape = files_.checkpoint().tensor(names.front()).view.shape;
    if (shape.rank() == 2) {
      std::int64_t rows = 0;
      for (const std::string& name : names)
        rows += files_.checkpoint().tensor(name).view.shape[0];
      shape = Shape{rows, shape[1]};
    }
    const DType dtype = ops_.compute_dtype();
    const TensorView all{nullptr, dtype, shape};
    const Buffer& buffer = weights_.buffers.emplace_back(ops_.memory(), all.size_bytes());
    std::size_t offset_bytes = 0;
    for (const std::string& name : names) {
      const CheckpointTensor& tensor = files_.checkpoint().tensor(name);
      const TensorView part = buffer.view(dtype, tensor.view.shape, offset_bytes);
      ops_.upload(part, tensor.view, ops_.stream());
      offset_bytes += part.size_bytes();
      // Converted and not read again: it should not count as this process's memory.
      tensor.file->release_pages(bytes_of(tensor));
      advance(tensor);
    }
    return buffer.view(dtype, shape);
  }

  static std::span<const std::byte> bytes_of(const CheckpointTensor& tensor) {
    return {tensor.view.as<std::byte>(), tensor.view.size_bytes()};
  }

  void advance(const CheckpointTensor& tensor) {
    done_bytes_ += tensor.view.size_bytes();
    if (progress_) progress_(done_bytes_, files_.text_size_bytes());
  }

  const ModelFiles& files_;
  Ops& ops_;
  const LoadProgress& progress_;
  TextWeights weights_;
  std::uint64_t done_bytes_ = 0;
};

}  // namespace

std::uint64_t TextWeights::size_bytes() const {
  std::uint64_t total = embedding.storage.size_bytes();
  for (const Buffer& buffer : buffers)
    total += buffer.size_bytes();
  return total;
}

TextWeights load_text_weights(const ModelFiles& files, Ops& ops, const LoadProgress& progress) {
  TextWeights weights = Loader(files, ops, progress).load();
  ops.synchronize(ops.stream());
  return weights;
}

}  // namespace gemmad
