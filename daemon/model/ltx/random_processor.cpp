#include "daemon/model/ltx/random_processor.h"

#include <memory>

#include "daemon/model/ltx/processor_tensors.h"
#include "daemon/model/model_file_error.h"
#include "daemon/model/random_weights.h"
#include "kernels/base/float_formats.h"

namespace gemmad {
namespace {

constexpr float kRegisterScale = 50;  // to a deviation of 1

}  // namespace

RandomProcessor::RandomProcessor(const ProcessorConfig& config, const StateSizes& states, std::uint64_t seed,
                                 int num_threads)
    : seed_(seed), num_threads_(num_threads) {
  check_fits(config, states, "processor_preset");
  for (const ProcessorTensor& tensor : expected_tensors(config, states)) {
    shapes_.emplace(tensor.name, tensor.shape);
    size_bytes_ += ConstTensorView{nullptr, DType::kBF16, tensor.shape}.size_bytes();
  }
}

HostTensor RandomProcessor::tensor(std::string_view name) const {
  const Shape& shape = shape_of(name);
  const auto size = static_cast<std::size_t>(shape.num_elements());
  const auto values = std::make_shared_for_overwrite<std::uint16_t[]>(size);
  make(name, 0, {values.get(), size});
  return {{values.get(), DType::kBF16, shape}, values};
}

std::vector<WeightEntry> RandomProcessor::entries() const {
  std::vector<WeightEntry> entries;
  for (const auto& [name, shape] : shapes_)
    entries.push_back({name, DType::kBF16, shape});
  return entries;
}

void RandomProcessor::read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const {
  constexpr std::size_t kElementBytes = sizeof(std::uint16_t);
  shape_of(name);
  make(name, offset / kElementBytes,
       {reinterpret_cast<std::uint16_t*>(to.data()), to.size() / kElementBytes});
}

const Shape& RandomProcessor::shape_of(std::string_view name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end()) throw ModelFileError("no tensor '" + std::string(name) + "' in the processor");
  return found->second;
}

void RandomProcessor::make(std::string_view name, std::uint64_t first, std::span<std::uint16_t> to) const {
  RandomValues(seed_, name).fill(first, to, num_threads_);
  const bool is_norm = name.ends_with("_norm.weight");
  const bool is_registers = name.ends_with("learnable_registers");
  if (!is_norm && !is_registers) return;
  for (std::uint16_t& bits : to) {
    const float value = bf16_to_f32(bits);
    bits = f32_to_bf16(is_norm ? 1 + value : kRegisterScale * value);
  }
}

}  // namespace gemmad
