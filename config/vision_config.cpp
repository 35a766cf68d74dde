#include "config/vision_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/json_section.h"
#include "config/strict_json.h"

namespace gemmad {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxPatches = 65536;

/// The side of a square of `count`; 0 where there is none.
std::int64_t side_of(std::int64_t count) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(count))));
  return side * side == count ? side : 0;
}

void refuse_other(const Section& section, std::string_view key, const std::string& supported) {
  const std::string value = section.string(key, supported);
  if (value != supported)
    throw section.error(key, "is '" + printable(value) + "'; only '" + supported + "' is supported");
}

void require_multiple(const Section& section, std::string_view key, std::int64_t value,
                      std::string_view divisor_key, std::int64_t divisor) {
  if (value % divisor == 0) return;
  throw section.error(key, "is " + std::to_string(value) + ", not a multiple of " + std::string(divisor_key) +
                               " (" + std::to_string(divisor) + ")");
}

void check_heads(const Section& vision, const VisionConfig& config) {
  require_multiple(vision, "hidden_size", config.hidden_size, "num_attention_heads", config.num_heads);
  if (config.head_dim() % 2 != 0) {
    throw vision.error("num_attention_heads", "is " + std::to_string(config.num_heads) +
                                                  ", which makes heads " + std::to_string(config.head_dim()) +
                                                  " wide; only even widths are supported");
  }
}

void check_grid(const Section& root, const Section& vision, const VisionConfig& config) {
  require_multiple(vision, "image_size", config.image_size, "patch_size", config.patch_size);
  if (config.num_patches() > kMaxPatches) {
    throw vision.error("image_size", "is " + std::to_string(config.image_size) + ", " +
                                         std::to_string(config.num_patches()) + " patches; at most " +
                                         std::to_string(kMaxPatches) + " are supported");
  }
  const std::int64_t side = side_of(config.tokens_per_image);
  if (side == 0 || config.grid_size() % side != 0) {
    throw root.error("mm_tokens_per_image",
                     "is " + std::to_string(config.tokens_per_image) +
                         ", must be the square of a divisor of the patches of a side (" +
                         std::to_string(config.grid_size()) + ")");
  }
}

/// Newer files spell "..._token_index" "..._token_id".
std::int64_t read_id(const Section& root, const std::string& name, std::int64_t absent,
                     std::int64_t vocab_size) {
  const std::string index_key = name + "_token_index";
  const std::string id_key = name + "_token_id";
  const std::string& key =
      root.find(index_key) == nullptr && root.find(id_key) != nullptr ? id_key : index_key;
  const std::int64_t id = root.integer(key, absent, 0, vocab_size - 1);
  if (id >= vocab_size)
    throw root.error(key, "is " + std::to_string(id) + " by default, beyond the vocabulary");
  return id;
}

void read_ids(const Section& root, const TextConfig& text, VisionConfig& config) {
  config.image_begin_id = read_id(root, "boi", 255999, text.vocab_size);
  config.image_end_id = read_id(root, "eoi", 256000, text.vocab_size);
  config.image_token_id = read_id(root, "image", 262144, text.vocab_size);
  if (config.image_token_id == config.image_begin_id || config.image_token_id == config.image_end_id ||
      config.image_begin_id == config.image_end_id) {
    throw root.error("image_token_index", "is " + std::to_string(config.image_token_id) +
                                              "; it, boi_token_index and eoi_token_index must differ");
  }
}

VisionConfig read_vision_config(const Section& root, const Section& vision, const TextConfig& text) {
  refuse_other(vision, "model_type", "siglip_vision_model");
  refuse_other(vision, "hidden_act", "gelu_pytorch_tanh");
  vision.integer("num_channels", VisionConfig::kNumColours, VisionConfig::kNumColours,
                 VisionConfig::kNumColours);
  VisionConfig config{};
  config.hidden_size = vision.integer("hidden_size", 1152, 1, 65536);
  config.intermediate_size = vision.integer("intermediate_size", 4304, 1, 1048576);
  config.num_layers = vision.integer("num_hidden_layers", 27, 1, 512);
  config.num_heads = vision.integer("num_attention_heads", 16, 1, 1024);
  config.image_size = vision.integer("image_size", 896, 1, 16384);
  config.patch_size = vision.integer("patch_size", 14, 1, 256);
  config.norm_eps = vision.number("layer_norm_eps", 1e-6, 1e-12, 0.1);
  config.tokens_per_image = root.integer("mm_tokens_per_image", 256, 1, kMaxPatches);
  config.text_hidden_size = text.hidden_size;
  check_heads(vision, config);
  check_grid(root, vision, config);
  read_ids(root, text, config);
  return config;
}

}  // namespace

double VisionConfig::score_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim()));
}

std::int64_t VisionConfig::pool_size() const {
  return grid_size() / side_of(tokens_per_image);
}

std::optional<VisionConfig> parse_vision_config(std::string_view json_text, const std::string& source_name,
                                                const TextConfig& text) {
  if (text.model_type != "gemma3") return std::nullopt;
  const json document = parse_strict_json(json_text, source_name, kMaxConfigBytes);
  const Section root(document, source_name, "");
  const json* nested = root.find_value("vision_config");
  if (nested == nullptr) return std::nullopt;
  return read_vision_config(root, Section(*nested, source_name, "vision_config"), text);
}

std::optional<VisionConfig> load_vision_config(const std::filesystem::path& file, const TextConfig& text) {
  return parse_vision_config(read_text_file(file, kMaxConfigBytes), file.string(), text);
}

}  // namespace gemmad
