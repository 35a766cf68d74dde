#include "daemon/model/vision/vision_tower.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gemmad {

VisionTower::Places VisionTower::cut_up(MemoryCutter& cutter, const VisionConfig& config,
                                        const HeadLayout& heads, DType dtype) {
  const std::int64_t rows = config.num_patches();
  const std::int64_t width = config.hidden_size;
  Places places;
  places.begins = cutter.place(DType::kI32, {rows});
  places.ends = cutter.place(DType::kI32, {rows});
  places.features = cutter.place(dtype, {config.tokens_per_image, config.text_hidden_size});
  places.h = cutter.place(dtype, {rows, width});
  places.normed = cutter.place(dtype, {rows, width});
  const std::size_t shared = cutter.end_bytes();
  places.qkv = cutter.place(dtype, {rows, heads.qkv_width()});
  places.mixed = cutter.place(dtype, {rows, heads.q_width()});
  cutter.rewind(shared);
  places.fed = cutter.place(dtype, {rows, config.intermediate_size});
  cutter.rewind(shared);
  places.patches = cutter.place(dtype, {rows, padded_patch_width(config)});
  cutter.rewind(shared);
  places.pooled = cutter.place(dtype, {config.tokens_per_image, width});
  return places;
}

std::size_t VisionTower::bytes_of(const VisionConfig& config, const HeadLayout& heads, DType dtype) {
  MemoryCutter cutter(nullptr);
  cut_up(cutter, config, heads, dtype);
  return cutter.most_bytes();
}

std::uint64_t VisionTower::size_bytes(const VisionConfig& config, const Ops& ops) {
  return bytes_of(config, vision_heads(config, ops), ops.compute_dtype());
}

VisionTower::VisionTower(const VisionConfig& config, VisionWeights weights, Ops& ops)
    : config_(config),
      weights_(std::move(weights)),
      ops_(ops),
      memory_(ops.memory(), bytes_of(config, weights_.heads, ops.compute_dtype())) {
  MemoryCutter cutter(&memory_);
  places_ = cut_up(cutter, config, weights_.heads, ops.compute_dtype());
  upload_spans();
}

/// Every patch sees all.
void VisionTower::upload_spans() {
  const Shape rows{config_.num_patches()};
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(config_.num_patches()), 0);
  ops_.upload(places_.begins, {numbers.data(), DType::kI32, rows}, ops_.stream());
  std::fill(numbers.begin(), numbers.end(), static_cast<std::int32_t>(config_.num_patches()));
  ops_.upload(places_.ends, {numbers.data(), DType::kI32, rows}, ops_.stream());
}

void VisionTower::begin(ConstTensorView patches) {
  const Shape expected{config_.num_patches(), config_.patch_width()};
  if (!(patches.shape == expected) || patches.dtype != DType::kF32) {
    throw std::invalid_argument("an image's patches are " + std::string(name(patches.dtype)) + " " +
                                patches.shape.text() + ", must be F32 " + expected.text());
  }
  has_image_ = false;
  const std::int64_t padded = padded_patch_width(config_);
  std::vector<float> rows(static_cast<std::size_t>(config_.num_patches() * padded));
  for (std::int64_t row = 0; row < config_.num_patches(); ++row) {
    std::copy_n(patches.as<float>() + row * config_.patch_width(), config_.patch_width(),
                rows.data() + row * padded);
  }
  const Stream stream = ops_.stream();
  ops_.upload(places_.patches, {rows.data(), DType::kF32, places_.patches.shape}, stream);
  // A convolution whose steps are as wide as its kernel is a product.
  ops_.linear({places_.patches, weights_.patch, weights_.patch_bias, Activation::kNone, weights_.positions,
               places_.h},
              stream);
  next_layer_ = 0;
  has_image_ = true;
}

bool VisionTower::step() {
  if (!has_image_ || next_layer_ == config_.num_layers)
    throw std::logic_error("a vision tower's step comes after begin() and before the last one");
  const std::int64_t end = std::min(next_layer_ + kLayersAtOnce, config_.num_layers);
  for (; next_layer_ < end; ++next_layer_)
    run_layer(weights_.layers[static_cast<std::size_t>(next_layer_)]);
  if (next_layer_ < config_.num_layers) return false;
  project();
  return true;
}

ConstTensorView VisionTower::features() const {
  if (!has_image_ || next_layer_ < config_.num_layers)
    throw std::logic_error("a vision tower has features after its last step");
  return places_.features;
}

void VisionTower::run_layer(const VisionLayer& layer) {
  const Stream stream = ops_.stream();
  const Places& p = places_;
  const auto eps = static_cast<float>(config_.norm_eps);
  ops_.layer_norm(p.h, layer.norm1, layer.norm1_bias, eps, p.normed, stream);
  ops_.linear({p.normed, layer.qkv, layer.qkv_bias, Activation::kNone, {}, p.qkv}, stream);
  const AttentionParams params{weights_.heads, static_cast<float>(config_.score_scale()), 0};
  ops_.attention(p.qkv, {p.begins, p.ends}, params, p.mixed, stream);
  ops_.linear({p.mixed, layer.out, layer.out_bias, Activation::kNone, p.h, p.h}, stream);

  ops_.layer_norm(p.h, layer.norm2, layer.norm2_bias, eps, p.normed, stream);
  ops_.linear({p.normed, layer.up, layer.up_bias, Activation::kGelu, {}, p.fed}, stream);
  ops_.linear({p.fed, layer.down, layer.down_bias, Activation::kNone, p.h, p.h}, stream);
}

void VisionTower::project() {
  const Stream stream = ops_.stream();
  const Places& p = places_;
  const auto eps = static_cast<float>(config_.norm_eps);
  ops_.layer_norm(p.h, weights_.last_norm, weights_.last_norm_bias, eps, p.normed, stream);
  ops_.pool_squares(p.normed, config_.pool_size(), p.pooled, stream);
  ops_.rms_norm(p.pooled, weights_.projector_norm, eps, p.pooled, stream);
  ops_.linear({p.pooled, weights_.projector, {}, Activation::kNone, {}, p.features}, stream);
}

}  // namespace gemmad
