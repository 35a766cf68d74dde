// What a Gemma 3 text model is, read from the config.json of a Hugging Face model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_error.h"

namespace gemmad {

/// kSliding: attention over the last `sliding_window` tokens. kFull: over all earlier ones.
enum class LayerKind { kSliding, kFull };

/// Rotary positions of one kind of layer: inv_freq[i] = theta^(-2i/S) / factor.
struct RopeConfig {
  double theta;
  double factor = 1.0;

  bool operator==(const RopeConfig&) const = default;
};

/// Sizes and constants of the text model. Everything is checked: sizes are positive and bounded (products of
/// any three fit in 64 bits), heads divide by kv heads, S is even, there are L layer kinds, ids are below V.
struct TextConfig {
  std::string model_type;          // "gemma3" or "gemma3_text", of the file's top level
  std::int64_t vocab_size;         // V
  std::int64_t hidden_size;        // D
  std::int64_t intermediate_size;  // F
  std::int64_t num_layers;         // L
  std::int64_t num_heads;          // H
  std::int64_t num_kv_heads;       // K
  std::int64_t head_dim;           // S; H * S need not be D
  std::int64_t sliding_window;     // tokens, the query's own included
  double query_pre_attn_scalar;
  double rms_norm_eps;
  RopeConfig rope_full;
  RopeConfig rope_sliding;
  std::vector<LayerKind> layer_kinds;  // [L]
  bool tie_word_embeddings;
  std::int64_t bos_id;
  std::int64_t pad_id;
  std::vector<std::int64_t> eos_ids;

  /// Factor of the attention scores: query_pre_attn_scalar^-0.5.
  double score_scale() const;

  bool operator==(const TextConfig&) const = default;
};

/// Parses a config.json of at most 1 MiB. Absent keys take the Gemma 3 defaults; unknown keys are ignored;
/// both spellings of RoPE are read. Throws ConfigError for a model that this program would compute wrongly,
/// by key.
TextConfig parse_model_config(std::string_view json_text, const std::string& source_name);

/// parse_model_config of a file. Blocks on the disk.
TextConfig load_model_config(const std::filesystem::path& file);

}  // namespace gemmad
