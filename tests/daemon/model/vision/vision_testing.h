// A vision tower and what comes out of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "daemon/model/vision/vision_files.h"
#include "daemon/model/vision/vision_tower.h"
#include "daemon/model/weight_source.h"
#include "kernels/ops.h"

namespace gemmad {

/// The tiny multimodal model's tower.
VisionFiles tiny_vision();

/// F32 rows on the host.
struct HostRows {
  std::vector<float> values;
  Shape shape;

  ConstTensorView view() const { return {values.data(), DType::kF32, shape}; }
};

/// The patches of `pixels` [1, 3, side, side] F32, as VisionTower::begin takes them.
HostRows patches_of_pixels(const ConstTensorView& pixels, const VisionConfig& config);

/// Values in [-1, 1] in place of an image; the same for the same seed.
HostRows random_patches(const VisionConfig& config, std::uint64_t seed);

/// A tower on a device, with all its weights.
class VisionTesting {
 public:
  /// Heads as wide as the device likes them.
  VisionTesting(const WeightSource& source, const VisionConfig& config, std::unique_ptr<Ops> ops);
  /// Heads of another width, on the CPU.
  VisionTesting(const WeightSource& source, const VisionConfig& config, std::int64_t padded_head_dim);

  Ops& ops() { return *ops_; }
  VisionTower& tower() { return *tower_; }
  /// All steps; the features as F32.
  HostRows run(const HostRows& patches);
  /// The features as they are now, as F32.
  HostRows features();

 private:
  void load(const WeightSource& source, const VisionConfig& config, const HeadLayout& heads);

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<VisionTower> tower_;
};

}  // namespace gemmad
