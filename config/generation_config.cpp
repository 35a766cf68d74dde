#include "config/generation_config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "config/json_section.h"
#include "config/json_value.h"
#include "config/strict_json.h"

namespace gemmad {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxEosIds = 64;
constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kEosId = 1;

}  // namespace

GenerationConfig parse_generation_config(std::string_view json_text, const std::string& source_name) {
  const json document = parse_strict_json(json_text, source_name, kMaxConfigBytes);
  if (!document.is_object()) {
    throw ConfigError::at_position(source_name, 1, 1,
                                   "is " + describe(document) + ", must be an object of keys");
  }
  const Section root(document, source_name, "");
  constexpr std::string_view kKey = "eos_token_id";
  GenerationConfig config;
  const json* eos = root.find_value(kKey);
  if (eos == nullptr) return config;
  const auto read = [&](const json& id, const std::string& path) {
    config.eos_ids.push_back(integer_value(id, source_name, path, 0, kMaxId));
  };
  const std::string path = root.path_of(kKey);
  if (!eos->is_array()) {
    read(*eos, path);
    return config;
  }
  for (const json& id : array_value(*eos, source_name, path, kMaxEosIds))
    read(id, path + "[" + std::to_string(config.eos_ids.size()) + "]");
  return config;
}

std::optional<GenerationConfig> load_generation_config(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::status(file, error).type() == std::filesystem::file_type::not_found)
    return std::nullopt;
  return parse_generation_config(read_text_file(file, kMaxConfigBytes), file.string());
}

std::vector<std::int32_t> stop_ids(const TextConfig& model, const std::optional<GenerationConfig>& generation,
                                   std::optional<std::int32_t> end_of_turn) {
  const bool is_named = generation && !generation->eos_ids.empty();
  std::vector<std::int32_t> ids = {kEosId};
  for (const std::int64_t id : is_named ? generation->eos_ids : model.eos_ids)
    ids.push_back(static_cast<std::int32_t>(id));
  if (end_of_turn) ids.push_back(*end_of_turn);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace gemmad
