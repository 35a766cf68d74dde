#include "config/model_presets.h"

#include <stdexcept>

namespace gemmad {

namespace {

constexpr std::int64_t kFullEvery = 6;  // each sixth layer attends to all tokens

TextConfig common() {
  TextConfig config{};
  config.query_pre_attn_scalar = 256;
  config.rms_norm_eps = 1e-6;
  config.rope_full = {1e6};
  config.rope_sliding = {1e4};
  config.head_dim = 256;
  config.tie_word_embeddings = true;
  config.bos_id = 2;
  config.pad_id = 0;
  config.eos_ids = {1};
  return config;
}

TextConfig text_only() {
  TextConfig config = common();
  config.model_type = "gemma3_text";
  config.vocab_size = 262144;
  config.sliding_window = 512;
  return config;
}

TextConfig multimodal() {
  TextConfig config = common();
  config.model_type = "gemma3";
  config.vocab_size = 262208;
  config.sliding_window = 1024;
  config.rope_full.factor = 8;
  return config;
}

struct Sizes {
  std::int64_t hidden;
  std::int64_t intermediate;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
};

TextConfig sized(TextConfig config, const Sizes& sizes) {
  config.hidden_size = sizes.hidden;
  config.intermediate_size = sizes.intermediate;
  config.num_layers = sizes.layers;
  config.num_heads = sizes.heads;
  config.num_kv_heads = sizes.kv_heads;
  for (std::int64_t i = 1; i <= sizes.layers; ++i)
    config.layer_kinds.push_back(i % kFullEvery == 0 ? LayerKind::kFull : LayerKind::kSliding);
  return config;
}

TextConfig gemma3_27b() {
  TextConfig config = sized(multimodal(), {5376, 21504, 62, 32, 16});
  config.head_dim = 128;
  config.query_pre_attn_scalar = 168;
  return config;
}

}  // namespace

TextConfig preset_config(Preset preset) {
  switch (preset) {
    case Preset::kGemma3_270m:
      return sized(text_only(), {640, 2048, 18, 4, 1});
    case Preset::kGemma3_1b:
      return sized(text_only(), {1152, 6912, 26, 4, 1});
    case Preset::kGemma3_4b:
      return sized(multimodal(), {2560, 10240, 34, 8, 4});
    case Preset::kGemma3_12b:
      return sized(multimodal(), {3840, 15360, 48, 16, 8});
    case Preset::kGemma3_27b:
      return gemma3_27b();
    case Preset::kNone:
      break;
  }
  throw std::invalid_argument("no preset was chosen");
}

std::optional<VisionConfig> preset_vision_config(Preset preset) {
  const TextConfig text = preset_config(preset);
  return parse_vision_config(R"({"vision_config": {}})", "preset", text);
}

}  // namespace gemmad
