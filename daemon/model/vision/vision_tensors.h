// Which tensors Gemma 3's vision tower and its projector have, and under what names files keep them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/vision_config.h"
#include "daemon/model/tensor_names.h"

namespace gemmad {

/// "vision_tower.encoder.layers.N.", what a layer's names begin with.
std::string vision_layer_prefix(std::int64_t layer);

/// The canonical name of a tensor of the tower or the projector; nothing for any other, and for those of the
/// tower that are never used: its pooling head and its list of positions. Files may put "model." in front,
/// and "vision_model." behind "vision_tower.". What the tower has not by its table keeps its name.
std::optional<std::string> canonical_vision_name(std::string_view file_name);

/// All tensors, in the order in which they are loaded: patches, layers, last norm, projector.
std::vector<ExpectedTensor> expected_tensors(const VisionConfig& config);

}  // namespace gemmad
