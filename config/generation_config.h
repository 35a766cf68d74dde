// Where a model stops, read from the generation_config.json of a Hugging Face model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace gemmad {

/// Of the file, only that: how tokens are chosen is said by the request, as in LTX-2.
struct GenerationConfig {
  std::vector<std::int64_t> eos_ids;  // empty: the file names none

  bool operator==(const GenerationConfig&) const = default;
};

/// Parses a generation_config.json of at most 1 MiB. `eos_token_id` is a number, a list of at most 64 or
/// null; unknown keys are ignored. Throws ConfigError by key.
GenerationConfig parse_generation_config(std::string_view json_text, const std::string& source_name);

/// parse_generation_config of a file; nothing where there is none. Blocks on the disk.
std::optional<GenerationConfig> load_generation_config(const std::filesystem::path& file);

/// The ids that end a generation, sorted and distinct: those of `generation` if it names any, else those of
/// the model's config; and always 1, Gemma's <eos>, and `end_of_turn`, the tokenizer's id of <end_of_turn>
/// (none: its model has none), which some configs leave out.
std::vector<std::int32_t> stop_ids(const TextConfig& model, const std::optional<GenerationConfig>& generation,
                                   std::optional<std::int32_t> end_of_turn);

}  // namespace gemmad
