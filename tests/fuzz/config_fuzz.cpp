// Any bytes as a config file, as a model's config.json and generation_config.json and as an LTX-2
// checkpoint's metadata: they are read, or refused with ConfigError. The quick reader agrees with the
// ordinary one.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "config/daemon_config.h"
#include "config/gemma_pairing.h"
#include "config/generation_config.h"
#include "config/model_config.h"
#include "config/processor_config.h"
#include "config/quick_json.h"
#include "config/vision_config.h"

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
    const std::optional<gemmad::VisionConfig> vision = gemmad::parse_vision_config(text, "fuzz", config);
    if (vision &&
        vision->num_patches() != vision->tokens_per_image * vision->pool_size() * vision->pool_size())
      std::abort();
  } catch (const gemmad::ConfigError&) {
  }
  try {
    if (gemmad::parse_generation_config(text, "fuzz").eos_ids.size() > 64) std::abort();
  } catch (const gemmad::ConfigError&) {
  }
  try {
    const gemmad::FileMetadata metadata = {{"config", std::string(text)},
                                           {"model_version", std::string(text)},
                                           {"gemma_source_checkpoint", std::string(text)}};
    const gemmad::ProcessorMetadata read = gemmad::parse_processor_metadata(metadata, "fuzz");
    if (read.config.video.width() < 4 || read.config.audio.width() > 65536) std::abort();
    gemmad::check_pairing(read.pairing, "gemma3", read.pairing.gemma_version, "fuzz");
  } catch (const gemmad::ConfigError&) {
  }
  return 0;
}
