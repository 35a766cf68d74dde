// Any bytes as a config file and as a model's config.json: they are read, or refused with ConfigError.
// The quick reader agrees with the ordinary one.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/daemon_config.h"
#include "config/model_config.h"
#include "config/quick_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto quick = gemmad::quick_json(text); quick && *quick != nlohmann::json::parse(text))
    std::abort();
  try {
    const gemmad::DaemonConfig config = gemmad::parse_config(text, "fuzz");
    if (gemmad::parse_config(gemmad::effective_config(config).dump(), "printed") != config) std::abort();
  } catch (const gemmad::ConfigError&) {
  }
  try {
    const gemmad::TextConfig config = gemmad::parse_model_config(text, "fuzz");
    if (config.layer_kinds.size() != static_cast<std::size_t>(config.num_layers)) std::abort();
  } catch (const gemmad::ConfigError&) {
  }
  return 0;
}
