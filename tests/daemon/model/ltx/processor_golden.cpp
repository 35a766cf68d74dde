#include "tests/daemon/model/ltx/processor_golden.h"

#include "kernels/base/float_formats.h"

namespace gemmad {

namespace {

std::string name(Modality modality, const char* end) {
  return std::string(modality == Modality::kVideo ? "video" : "audio") + end;
}

}  // namespace

ProcessorGolden::ProcessorGolden(const std::string& model)
    : file_(ltx_file(model + ".golden.safetensors")), states_(kSizes) {
  const ConstTensorView mask = file_.get("attention_mask");
  for (std::int64_t prompt = 0; prompt < mask.shape[0]; ++prompt) {
    std::int64_t first = 0;
    while (mask.as<std::int32_t>()[prompt * kLength + first] == 0)
      ++first;
    first_rows_.push_back(first);
    states_.add(states_of(prompt, first));
  }
}

ConstTensorView ProcessorGolden::features(std::size_t prompt, Modality modality) const {
  return rows(name(modality, "_features"), prompt, first_rows_[prompt]);
}

ConstTensorView ProcessorGolden::embeddings(std::size_t prompt, Modality modality) const {
  return rows(name(modality, "_encoding"), prompt, 0);
}

std::vector<std::vector<float>> ProcessorGolden::states_of(std::int64_t prompt, std::int64_t first) const {
  std::vector<std::vector<float>> states;
  for (std::int64_t index = 0; index < kSizes.num_states; ++index) {
    const ConstTensorView all = file_.get("hidden_states." + std::to_string(index));
    std::vector<float>& state = states.emplace_back();
    for (std::int64_t i = (prompt * kLength + first) * kSizes.hidden_size;
         i < (prompt + 1) * kLength * kSizes.hidden_size; ++i)
      state.push_back(bf16_to_f32(load_u16(all.as<std::byte>(), i)));
  }
  return states;
}

ConstTensorView ProcessorGolden::rows(const std::string& tensor, std::size_t prompt,
                                      std::int64_t first) const {
  const ConstTensorView all = file_.get(tensor);
  const std::int64_t row = static_cast<std::int64_t>(prompt) * kLength + first;
  return {all.as<float>() + row * all.shape[2], DType::kF32, {kLength - first, all.shape[2]}};
}

}  // namespace gemmad
