#include "daemon/model/vision/vision_tensors.h"

#include <utility>

namespace gemmad {
namespace {

constexpr std::string_view kTower = "vision_tower.";
constexpr std::string_view kProjector = "multi_modal_projector.";

bool strip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

class Table {
 public:
  void add(const std::string& name, const Shape& shape) { tensors_.push_back({name, shape}); }
  void add_norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  }
  void add_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::string vision_layer_prefix(std::int64_t layer) {
  return std::string(kTower) + "encoder.layers." + std::to_string(layer) + ".";
}

std::optional<std::string> canonical_vision_name(std::string_view file_name) {
  std::string_view name = file_name;
  strip(name, "model.");
  if (name.starts_with(kProjector)) return std::string(name);
  if (!strip(name, kTower)) return std::nullopt;
  strip(name, "vision_model.");
  if (name.starts_with("head.") || name == "embeddings.position_ids") return std::nullopt;
  return std::string(kTower).append(name);
}

std::vector<ExpectedTensor> expected_tensors(const VisionConfig& config) {
  const std::int64_t c = config.hidden_size;
  const std::string tower(kTower);
  const std::string projector(kProjector);
  const std::string patches = tower + "embeddings.patch_embedding";
  Table table;
  table.add(patches + ".weight", {c, VisionConfig::kNumColours, config.patch_size, config.patch_size});
  table.add(patches + ".bias", {c});
  table.add(tower + "embeddings.position_embedding.weight", {config.num_patches(), c});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = vision_layer_prefix(layer);
    table.add_norm(prefix + "layer_norm1", c);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
      table.add_linear(prefix + "self_attn." + part, c, c);
    table.add_norm(prefix + "layer_norm2", c);
    table.add_linear(prefix + "mlp.fc1", config.intermediate_size, c);
    table.add_linear(prefix + "mlp.fc2", c, config.intermediate_size);
  }
  table.add_norm(tower + "post_layernorm", c);
  table.add(projector + "mm_soft_emb_norm.weight", {c});
  table.add(projector + "mm_input_projection_weight", {c, config.text_hidden_size});
  return table.take();
}

}  // namespace gemmad
