// A model's eyes before they are loaded.
#pragma once

#include <memory>

#include "config/vision_config.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

struct VisionSource {
  VisionConfig config;
  std::shared_ptr<const WeightOrigin> weights;  // of the tower and its projector
};

}  // namespace gemmad
