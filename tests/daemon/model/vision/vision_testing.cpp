#include "tests/daemon/model/vision/vision_testing.h"

#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "config/model_config.h"
#include "kernels/base/float_formats.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/model_testing.h"

namespace gemmad {

VisionFiles tiny_vision() {
  const std::filesystem::path folder = model_folder("gemma3-tiny");
  const TextConfig text = load_model_config(folder / "config.json");
  return VisionFiles::open(folder, load_vision_config(folder / "config.json", text).value());
}

HostRows patches_of_pixels(const ConstTensorView& pixels, const VisionConfig& config) {
  const std::int64_t side = config.image_size;
  if (!(pixels.shape == Shape{1, 3, side, side}) || pixels.dtype != DType::kF32)
    throw std::invalid_argument("no pixels of that size: " + pixels.shape.text());
  const std::int64_t grid = config.grid_size();
  const std::int64_t patch = config.patch_size;
  HostRows rows{{}, {config.num_patches(), config.patch_width()}};
  for (std::int64_t row = 0; row < config.num_patches(); ++row) {
    for (std::int64_t column = 0; column < config.patch_width(); ++column) {
      const std::int64_t colour = column / (patch * patch);
      const std::int64_t y = row / grid * patch + column / patch % patch;
      const std::int64_t x = row % grid * patch + column % patch;
      rows.values.push_back(pixels.as<float>()[(colour * side + y) * side + x]);
    }
  }
  return rows;
}

HostRows random_patches(const VisionConfig& config, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  HostRows rows{{}, {config.num_patches(), config.patch_width()}};
  for (std::int64_t i = 0; i < rows.shape.num_elements(); ++i)
    rows.values.push_back(values(generator));
  return rows;
}

VisionTesting::VisionTesting(const WeightSource& source, const VisionConfig& config, std::unique_ptr<Ops> ops)
    : ops_(std::move(ops)) {
  load(source, config, vision_heads(config, *ops_));
}

VisionTesting::VisionTesting(const WeightSource& source, const VisionConfig& config,
                             std::int64_t padded_head_dim)
    : ops_(make_cpu_ops(1)) {
  load(source, config, {config.num_heads, config.num_heads, padded_head_dim});
}

void VisionTesting::load(const WeightSource& source, const VisionConfig& config, const HeadLayout& heads) {
  tower_ =
      std::make_unique<VisionTower>(config, load_vision_weights(source, config, heads, *ops_, {}), *ops_);
}

HostRows VisionTesting::run(const HostRows& patches) {
  tower_->begin(patches.view());
  while (!tower_->step()) {
  }
  return features();
}

HostRows VisionTesting::features() {
  const ConstTensorView there = tower_->features();
  const auto count = static_cast<std::size_t>(there.shape.num_elements());
  HostRows rows{std::vector<float>(count), there.shape};
  if (there.dtype == DType::kF32) {
    ops_->copy_to_host({rows.values.data(), DType::kF32, there.shape}, there, ops_->stream());
    ops_->synchronize(ops_->stream());
    return rows;
  }
  std::vector<std::uint16_t> bits(count);
  ops_->copy_to_host({bits.data(), DType::kBF16, there.shape}, there, ops_->stream());
  ops_->synchronize(ops_->stream());
  for (std::size_t i = 0; i < count; ++i)
    rows.values[i] = bf16_to_f32(bits[i]);
  return rows;
}

}  // namespace gemmad
