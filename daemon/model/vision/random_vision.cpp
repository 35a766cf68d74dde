#include "daemon/model/vision/random_vision.h"

#include "daemon/model/vision/vision_tensors.h"
#include "kernels/base/float_formats.h"

namespace gemmad {

RandomVision::RandomVision(const VisionConfig& config, std::uint64_t seed, int num_threads)
    : RandomTensors(seed, num_threads) {
  for (const ExpectedTensor& tensor : expected_tensors(config))
    add(tensor.name, tensor.shape);
}

void RandomVision::make(std::string_view name, const Shape&, std::uint64_t first,
                        std::span<std::uint16_t> to) const {
  fill(name, first, to);
  const bool is_layer_norm = name.ends_with("layer_norm1.weight") || name.ends_with("layer_norm2.weight") ||
                             name.ends_with("post_layernorm.weight");
  if (!is_layer_norm) return;
  for (std::uint16_t& bits : to)
    bits = f32_to_bf16(1 + bf16_to_f32(bits));
}

}  // namespace gemmad
