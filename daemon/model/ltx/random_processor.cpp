#include "daemon/model/ltx/random_processor.h"

#include "daemon/model/ltx/processor_tensors.h"
#include "kernels/base/float_formats.h"

namespace gemmad {
namespace {

constexpr float kRegisterScale = 50;  // to a deviation of 1

}  // namespace

RandomProcessor::RandomProcessor(const ProcessorConfig& config, const StateSizes& states, std::uint64_t seed,
                                 int num_threads)
    : RandomTensors(seed, num_threads) {
  check_fits(config, states, "processor_preset");
  for (const ProcessorTensor& tensor : expected_tensors(config, states))
    add(tensor.name, tensor.shape);
}

void RandomProcessor::make(std::string_view name, const Shape&, std::uint64_t first,
                           std::span<std::uint16_t> to) const {
  fill(name, first, to);
  const bool is_norm = name.ends_with("_norm.weight");
  const bool is_registers = name.ends_with("learnable_registers");
  if (!is_norm && !is_registers) return;
  for (std::uint16_t& bits : to) {
    const float value = bf16_to_f32(bits);
    bits = f32_to_bf16(is_norm ? 1 + value : kRegisterScale * value);
  }
}

}  // namespace gemmad
