// The sizes of the published Gemma 3 models, for models that are made without files.
#pragma once

#include <optional>

#include "config/daemon_config.h"
#include "config/model_config.h"
#include "config/vision_config.h"

namespace gemmad {

/// What parse_model_config makes of that model's config.json as published, but for the ids that end a
/// generated text, which are the defaults. Not of kNone: std::invalid_argument.
TextConfig preset_config(Preset preset);

/// Likewise of parse_vision_config: nothing for those that read text only.
std::optional<VisionConfig> preset_vision_config(Preset preset);

}  // namespace gemmad
