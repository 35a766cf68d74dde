#include "daemon/model/tensor_names.h"

namespace gemmad {
namespace {

bool strip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_text(std::string_view name) {
  return name.starts_with("embed_tokens.") || name.starts_with("layers.") || name.starts_with("norm.");
}

}  // namespace

TensorIdentity identify_tensor(std::string_view file_name) {
  std::string_view name = file_name;
  const bool outer = strip(name, "model.");
  if (name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.")) {
    return {TensorRole::kVision, name};
  }
  const bool language = strip(name, "language_model.");
  if (name == "lm_head.weight") return {TensorRole::kHead, name};
  const bool inner = language && strip(name, "model.");
  if ((outer || inner) && is_text(name)) return {TensorRole::kText, name};
  return {TensorRole::kUnknown, file_name};
}

std::vector<ExpectedTensor> expected_tensors(const TextConfig& config) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.intermediate_size;
  const std::int64_t s = config.head_dim;
  const std::int64_t q = config.num_heads * s;
  const std::int64_t kv = config.num_kv_heads * s;

  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"embed_tokens.weight", Shape{config.vocab_size, d}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const auto add = [&](const char* name, Shape shape) { tensors.push_back({prefix + name, shape}); };
    add("input_layernorm.weight", {d});
    add("self_attn.q_proj.weight", {q, d});
    add("self_attn.k_proj.weight", {kv, d});
    add("self_attn.v_proj.weight", {kv, d});
    add("self_attn.q_norm.weight", {s});
    add("self_attn.k_norm.weight", {s});
    add("self_attn.o_proj.weight", {d, q});
    add("post_attention_layernorm.weight", {d});
    add("pre_feedforward_layernorm.weight", {d});
    add("mlp.gate_proj.weight", {f, d});
    add("mlp.up_proj.weight", {f, d});
    add("mlp.down_proj.weight", {d, f});
    add("post_feedforward_layernorm.weight", {d});
  }
  tensors.push_back({"norm.weight", Shape{d}});
  return tensors;
}

}  // namespace gemmad
