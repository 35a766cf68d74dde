#include "config/processor_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "config/json_section.h"
#include "config/json_value.h"
#include "config/strict_json.h"

namespace gemmad {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 4096;
constexpr std::int64_t kMaxConnectorLayers = 256;
constexpr std::int64_t kMinWidth = 4;  // two frequencies
constexpr std::int64_t kMaxWidth = 65536;
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 24;  // exact in fp32
constexpr std::size_t kMaxMetadataBytes = 4096;

/// The keys that tell V2, and the values that it is computed for.
struct CaptionKey {
  std::string_view name;
  bool value;
};
constexpr std::array kCaptionKeys = {
    CaptionKey{"caption_proj_before_connector", true}, CaptionKey{"caption_projection_first_linear", false},
    CaptionKey{"caption_proj_input_norm", false}, CaptionKey{"caption_projection_second_linear", false}};

ProcessorVariant read_variant(const Section& transformer) {
  const auto is_there = [&](const CaptionKey& key) { return transformer.find(key.name) != nullptr; };
  if (std::none_of(kCaptionKeys.begin(), kCaptionKeys.end(), is_there)) return ProcessorVariant::kV1;
  for (const CaptionKey& key : kCaptionKeys) {
    const json* value = transformer.find(key.name);
    const std::string wanted = key.value ? "true" : "false";
    if (value == nullptr) {
      throw transformer.error(key.name,
                              "is missing, though others of its kind are there; LTX-2 takes all four of them "
                              "or none, this one as " +
                                  wanted);
    }
    if (boolean_value(*value, transformer.source_name(), transformer.path_of(key.name)) != key.value)
      throw transformer.error(key.name, "is " + describe(*value) + "; only " + wanted + " is supported");
  }
  return ProcessorVariant::kV2;
}

/// `prefix`: of the keys. Absent keys take the values of `absent`.
ConnectorConfig read_connector(const Section& transformer, const std::string& prefix,
                               const ConnectorConfig& absent) {
  ConnectorConfig connector;
  const std::string heads_key = prefix + "num_attention_heads";
  const std::string dim_key = prefix + "attention_head_dim";
  connector.num_heads = transformer.integer(heads_key, absent.num_heads, 1, kMaxHeads);
  connector.head_dim = transformer.integer(dim_key, absent.head_dim, 2, kMaxHeadDim);
  connector.num_layers =
      transformer.integer(prefix + "num_layers", absent.num_layers, 1, kMaxConnectorLayers);
  if (connector.head_dim % 2 != 0) {
    throw transformer.error(dim_key, "is " + std::to_string(connector.head_dim) + "; RoPE needs an even one");
  }
  if (connector.width() < kMinWidth || connector.width() > kMaxWidth) {
    throw transformer.error(heads_key, "makes a connector " + std::to_string(connector.width()) +
                                           " wide, must be between " + std::to_string(kMinWidth) + " and " +
                                           std::to_string(kMaxWidth));
  }
  return connector;
}

RopeLayout read_rope_layout(const Section& transformer) {
  const std::string layout = transformer.string("rope_type", "split");
  if (layout == "split") return RopeLayout::kSplit;
  if (layout == "interleaved") return RopeLayout::kInterleaved;
  throw transformer.error("rope_type",
                          "is '" + printable(layout) + "'; supported are 'split', 'interleaved'");
}

std::int64_t read_max_pos(const Section& transformer) {
  constexpr std::string_view kKey = "connector_positional_embedding_max_pos";
  const json* value = transformer.find(kKey);
  if (value == nullptr) return 1;
  const std::string path = transformer.path_of(kKey);
  const json& axes = array_value(*value, transformer.source_name(), path, 16);
  if (axes.size() != 1) {
    throw transformer.error(
        kKey, "has " + std::to_string(axes.size()) + " elements, must have one: positions have one axis");
  }
  return integer_value(axes.front(), transformer.source_name(), path + "[0]", 1, kMaxPosition);
}

/// The transformer's own width is what V2's projection leads to, and what the connector takes.
void check_width(const Section& transformer, const std::string& prefix, const ConnectorConfig& connector) {
  const std::string heads_key = prefix + "num_attention_heads";
  const std::string dim_key = prefix + "attention_head_dim";
  for (const std::string& key : {heads_key, dim_key}) {
    if (transformer.find(key) == nullptr)
      throw transformer.error(key, "is missing; a projection's width comes from it");
  }
  const std::int64_t width =
      transformer.integer(heads_key, 0, 1, kMaxHeads) * transformer.integer(dim_key, 0, 1, kMaxHeadDim);
  if (width != connector.width()) {
    throw transformer.error(heads_key, "makes features " + std::to_string(width) +
                                           " wide, for a connector that is " +
                                           std::to_string(connector.width()) + " wide");
  }
}

ProcessorConfig read_config(const Section& transformer) {
  ProcessorConfig config;
  config.variant = read_variant(transformer);
  config.video = read_connector(transformer, "connector_", {30, 128, 2});
  config.audio = read_connector(transformer, "audio_connector_", config.video);
  config.has_gates = transformer.boolean("connector_apply_gated_attention", false);
  config.has_ffn_bias = transformer.boolean("connector_ff_bias", true);
  config.rope_layout = read_rope_layout(transformer);
  config.has_double_grid = transformer.string("frequencies_precision", "") == "float64";
  config.max_pos = read_max_pos(transformer);
  if (config.variant == ProcessorVariant::kV2) {
    check_width(transformer, "", config.video);
    check_width(transformer, "audio_", config.audio);
  }
  return config;
}

/// A value of the metadata that LTX-2 writes as it is or as JSON: "2.3.0" and "\"2.3.0\"" are the same.
std::optional<std::string> read_text(const FileMetadata& metadata, std::string_view key,
                                     const std::string& source_name) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  if (!found->second.starts_with('"'))
    return string_value(found->second, source_name, key, kMaxMetadataBytes);
  return string_value(
      parse_strict_json(found->second, source_name + ": key '" + std::string(key) + "'", kMaxMetadataBytes),
      source_name, key, kMaxMetadataBytes);
}

GemmaPairing read_pairing(const FileMetadata& metadata, const std::string& source_name) {
  constexpr std::string_view kKey = "gemma_source_checkpoint";
  GemmaPairing pairing;
  pairing.model_version = read_text(metadata, "model_version", source_name);
  const auto found = metadata.find(kKey);
  if (found == metadata.end()) return pairing;
  const json document =
      parse_strict_json(found->second, source_name + ": key '" + std::string(kKey) + "'", kMaxMetadataBytes);
  const Section source(document, source_name, std::string(kKey));
  if (source.find("gemma_version") == nullptr) throw source.error("gemma_version", "is missing");
  pairing.gemma_version = source.string("gemma_version", "");
  return pairing;
}

}  // namespace

StateSizes state_sizes(const TextConfig& config) {
  return {config.hidden_size, config.num_layers + 1};
}

ProcessorMetadata parse_processor_metadata(const FileMetadata& metadata, const std::string& source_name) {
  const auto found = metadata.find("config");
  if (found == metadata.end()) {
    throw ConfigError::of_source(source_name,
                                 "has no 'config' in its metadata; name the LTX-2 file that holds the "
                                 "connectors, as published");
  }
  const json document = parse_strict_json(found->second, source_name + ": key 'config'", kMaxConfigBytes);
  const Section root(document, source_name, "config");
  const json* transformer = root.find("transformer");
  if (transformer == nullptr) throw root.error("transformer", "is missing");
  return {read_config(Section(*transformer, source_name, "config.transformer")),
          read_pairing(metadata, source_name)};
}

void check_fits(const ProcessorConfig& config, const StateSizes& states, const std::string& source_name) {
  if (config.variant == ProcessorVariant::kV2) return;
  for (const Modality modality : kModalities) {
    const std::int64_t width = config.connector(modality).width();
    if (width == states.hidden_size) continue;
    throw ConfigError::of_source(
        source_name, std::string("the ") + (modality == Modality::kVideo ? "video" : "audio") +
                         " connector is " + std::to_string(width) + " wide, the Gemma's hidden states are " +
                         std::to_string(states.hidden_size) +
                         " wide; in this version of the processor they must be the same: name the Gemma that "
                         "belongs to it");
  }
}

ProcessorConfig processor_preset(ProcessorPreset preset) {
  ProcessorConfig config;
  config.has_double_grid = true;
  config.max_pos = 4096;
  switch (preset) {
    case ProcessorPreset::kLtx2:
      config.video = config.audio = {30, 128, 2};
      return config;
    case ProcessorPreset::kLtx2_3:
      config.variant = ProcessorVariant::kV2;
      config.video = {32, 128, 8};
      config.audio = {32, 64, 8};
      config.has_gates = true;
      return config;
    case ProcessorPreset::kNone:
      break;
  }
  throw std::invalid_argument("no preset was chosen");
}

}  // namespace gemmad
