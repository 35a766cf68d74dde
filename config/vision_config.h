// What the vision tower of a Gemma 3 model is, read from the same config.json as the text model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/model_config.h"

namespace gemmad {

/// Sizes and constants of the tower and its projector. Everything is checked: sizes are positive and bounded
/// (products of any three fit in 64 bits, patches in 16), heads divide C into even parts, patches the image,
/// tokens the patches into squares; ids differ and are below the vocabulary.
struct VisionConfig {
  std::int64_t hidden_size;        // C
  std::int64_t intermediate_size;  // F
  std::int64_t num_layers;
  std::int64_t num_heads;         // H
  std::int64_t image_size;        // pixels of a side
  std::int64_t patch_size;        // likewise
  double norm_eps;                // of every norm, the projector's too
  std::int64_t tokens_per_image;  // T, what an image becomes
  std::int64_t text_hidden_size;  // D
  std::int64_t image_begin_id;
  std::int64_t image_token_id;  // stands T times between the two
  std::int64_t image_end_id;

  /// S. The scores' factor is S^-0.5.
  std::int64_t head_dim() const { return hidden_size / num_heads; }
  double score_scale() const;
  /// Patches of a side.
  std::int64_t grid_size() const { return image_size / patch_size; }
  /// P
  std::int64_t num_patches() const { return grid_size() * grid_size(); }
  /// Numbers of a patch: its pixels, three colours each.
  std::int64_t patch_width() const { return kNumColours * patch_size * patch_size; }
  /// Patches of the side of a square that becomes one token.
  std::int64_t pool_size() const;

  static constexpr std::int64_t kNumColours = 3;

  bool operator==(const VisionConfig&) const = default;
};

/// Parses the rest of the config.json that `text` was read from. Nothing for a model without a tower: a text
/// model, or one whose `vision_config` is null or absent. Absent keys take Gemma 3's defaults; unknown keys
/// are ignored. Throws ConfigError for a tower that this program would compute wrongly, by key.
std::optional<VisionConfig> parse_vision_config(std::string_view json_text, const std::string& source_name,
                                                const TextConfig& text);

/// parse_vision_config of a file. Blocks on the disk.
std::optional<VisionConfig> load_vision_config(const std::filesystem::path& file, const TextConfig& text);

}  // namespace gemmad
