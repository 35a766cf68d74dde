#include "config/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/json_section.h"
#include "config/json_value.h"
#include "config/strict_json.h"

namespace gemmad {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxLayers = 512;
constexpr std::int64_t kMaxVocabulary = 4'194'304;
constexpr std::size_t kMaxEosIds = 64;

/// What would be computed otherwise than this program does.
void refuse_unsupported(const Section& text) {
  if (text.boolean("use_bidirectional_attention", false)) {
    throw text.error("use_bidirectional_attention", "is true; only causal attention is supported");
  }
  if (text.boolean("attention_bias", false)) {
    throw text.error("attention_bias", "is true; only projections without bias are supported");
  }
  if (const json* cap = text.find_value("attn_logit_softcapping")) {
    throw text.error("attn_logit_softcapping", "is " + describe(*cap) + "; only null is supported");
  }
  const std::string activation = text.string("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") {
    throw text.error("hidden_activation",
                     "is '" + printable(activation) + "'; only 'gelu_pytorch_tanh' is supported");
  }
}

/// Lays what `section` says over `rope`: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, each
/// optional. Older files write "type" for "rope_type".
void apply_rope(const Section& section, RopeConfig& rope) {
  rope.theta = section.number("rope_theta", rope.theta, 1, 1e12);
  const double factor = section.number("factor", 1.0, 1e-3, 1e6);
  const std::string_view type_key = section.find("rope_type") != nullptr ? "rope_type" : "type";
  if (section.find(type_key) == nullptr) {
    if (section.find("factor") != nullptr) throw section.error("rope_type", "is missing beside 'factor'");
    return;
  }
  const std::string type = section.string(type_key, "");
  if (type == "default") {
    rope.factor = 1.0;
  } else if (type == "linear") {
    if (section.find("factor") == nullptr) throw section.error("factor", "is missing; linear RoPE needs it");
    rope.factor = factor;
  } else {
    throw section.error(type_key, "is '" + printable(type) + "'; supported are 'default', 'linear'");
  }
}

void read_rope(const Section& text, TextConfig& config) {
  config.rope_full = {text.number("rope_theta", 1e6, 1, 1e12)};
  config.rope_sliding = {text.number("rope_local_base_freq", 1e4, 1, 1e12)};
  if (const json* parameters = text.find_value("rope_parameters")) {
    const Section kinds(*parameters, text.source_name(), text.path_of("rope_parameters"));
    for (const auto& [kind, rope] : parameters->items()) {
      // One flat set for all layers is another model's spelling; ignoring it would compute wrong positions.
      if (kind != "full_attention" && kind != "sliding_attention") {
        throw kinds.error(kind, "is no kind of layer; known are 'full_attention', 'sliding_attention'");
      }
      apply_rope(Section(rope, text.source_name(), kinds.path_of(kind)),
                 kind == "full_attention" ? config.rope_full : config.rope_sliding);
    }
  }
  // The old spelling scales full layers only.
  if (const json* scaling = text.find_value("rope_scaling")) {
    apply_rope(Section(*scaling, text.source_name(), text.path_of("rope_scaling")), config.rope_full);
  }
}

std::vector<LayerKind> read_layer_kinds(const Section& text, std::int64_t num_layers) {
  const std::string_view pattern_key =
      text.find("sliding_window_pattern") != nullptr ? "sliding_window_pattern" : "_sliding_window_pattern";
  const std::int64_t pattern = text.integer(pattern_key, 6, 1, kMaxLayers);
  std::vector<LayerKind> kinds;
  const json* types = text.find_value("layer_types");
  if (types == nullptr) {
    for (std::int64_t i = 1; i <= num_layers; ++i) {
      kinds.push_back(i % pattern == 0 ? LayerKind::kFull : LayerKind::kSliding);
    }
    return kinds;
  }
  const std::string path = text.path_of("layer_types");
  array_value(*types, text.source_name(), path, static_cast<std::size_t>(kMaxLayers));
  if (types->size() != static_cast<std::size_t>(num_layers)) {
    throw text.error("layer_types", "has " + std::to_string(types->size()) + " elements for " +
                                        std::to_string(num_layers) + " layers");
  }
  for (const json& type : *types) {
    const std::string element = path + "[" + std::to_string(kinds.size()) + "]";
    const std::string name = string_value(type, text.source_name(), element, Section::kMaxNameBytes);
    if (name != "sliding_attention" && name != "full_attention") {
      throw ConfigError::at_key(
          text.source_name(), element,
          "is '" + printable(name) + "'; known are 'full_attention', 'sliding_attention'");
    }
    kinds.push_back(name == "full_attention" ? LayerKind::kFull : LayerKind::kSliding);
  }
  return kinds;
}

/// Keys that a multimodal file may have at its top level, in its text section, or in both; the top level then
/// rules, as in the reference.
const Section& holder(const Section& root, const Section& text, std::string_view key) {
  return root.find_value(key) != nullptr ? root : text;
}

std::int64_t read_id(const Section& section, std::string_view key, std::int64_t absent,
                     std::int64_t vocab_size) {
  const json* value = section.find_value(key);
  const std::int64_t id = value == nullptr ? absent
                                           : integer_value(*value, section.source_name(),
                                                           section.path_of(key), 0, vocab_size - 1);
  if (id >= vocab_size) {
    throw section.error(key, "is " + std::to_string(id) + " by default, beyond the vocabulary");
  }
  return id;
}

void read_ids(const Section& root, const Section& text, TextConfig& config) {
  const auto read = [&](std::string_view key, std::int64_t absent) {
    return read_id(holder(root, text, key), key, absent, config.vocab_size);
  };
  config.bos_id = read("bos_token_id", 2);
  config.pad_id = read("pad_token_id", 0);
  const Section& eos = holder(root, text, "eos_token_id");
  const json* ids = eos.find_value("eos_token_id");
  if (ids == nullptr || !ids->is_array()) {
    config.eos_ids = {read("eos_token_id", 1)};
    return;
  }
  const std::string path = eos.path_of("eos_token_id");
  for (const json& id : array_value(*ids, eos.source_name(), path, kMaxEosIds)) {
    config.eos_ids.push_back(integer_value(id, eos.source_name(), path, 0, config.vocab_size - 1));
  }
}

TextConfig read_text_config(const Section& root, const Section& text) {
  refuse_unsupported(text);
  TextConfig config{};
  config.model_type = root.string("model_type", "");
  config.vocab_size = text.integer("vocab_size", 262208, 1, kMaxVocabulary);
  config.hidden_size = text.integer("hidden_size", 2304, 1, 65536);
  config.intermediate_size = text.integer("intermediate_size", 9216, 1, 1048576);
  config.num_layers = text.integer("num_hidden_layers", 26, 1, kMaxLayers);
  config.num_heads = text.integer("num_attention_heads", 8, 1, 1024);
  config.num_kv_heads = text.integer("num_key_value_heads", 4, 1, 1024);
  config.head_dim = text.integer("head_dim", 256, 2, 4096);
  config.sliding_window = text.integer("sliding_window", 4096, 1, 1048576);
  config.query_pre_attn_scalar = text.number("query_pre_attn_scalar", 256, 1e-3, 1e6);
  config.rms_norm_eps = text.number("rms_norm_eps", 1e-6, 1e-12, 0.1);
  if (config.num_heads % config.num_kv_heads != 0) {
    throw text.error("num_attention_heads", "is " + std::to_string(config.num_heads) +
                                                ", not a multiple of num_key_value_heads (" +
                                                std::to_string(config.num_kv_heads) + ")");
  }
  if (config.head_dim % 2 != 0) {
    throw text.error("head_dim", "is " + std::to_string(config.head_dim) + "; RoPE needs an even one");
  }
  read_rope(text, config);
  config.layer_kinds = read_layer_kinds(text, config.num_layers);
  config.tie_word_embeddings = holder(root, text, "tie_word_embeddings").boolean("tie_word_embeddings", true);
  read_ids(root, text, config);
  return config;
}

}  // namespace

double TextConfig::score_scale() const {
  return 1.0 / std::sqrt(query_pre_attn_scalar);
}

TextConfig parse_model_config(std::string_view json_text, const std::string& source_name) {
  const json document = parse_strict_json(json_text, source_name, kMaxConfigBytes);
  if (!document.is_object()) {
    throw ConfigError::at_position(source_name, 1, 1,
                                   "is " + describe(document) + ", must be an object of keys");
  }
  const Section root(document, source_name, "");
  const std::string supported = "; supported are 'gemma3', 'gemma3_text'";
  if (root.find("model_type") == nullptr) throw root.error("model_type", "is missing" + supported);
  const std::string model_type = root.string("model_type", "");
  if (model_type == "gemma3_text") return read_text_config(root, root);
  if (model_type != "gemma3")
    throw root.error("model_type", "is '" + printable(model_type) + "'" + supported);

  const json* nested = root.find("text_config");
  if (nested == nullptr)
    throw root.error("text_config", "is missing; a 'gemma3' file has its text model there");
  const Section text(*nested, source_name, "text_config");
  const std::string text_type = text.string("model_type", "gemma3_text");
  if (text_type != "gemma3_text") {
    throw text.error("model_type", "is '" + printable(text_type) + "'; supported is 'gemma3_text'");
  }
  return read_text_config(root, text);
}

TextConfig load_model_config(const std::filesystem::path& file) {
  return parse_model_config(read_text_file(file, kMaxConfigBytes), file.string());
}

}  // namespace gemmad
