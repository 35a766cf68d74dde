#include "daemon/job_layout.h"

namespace gemmad {

namespace {

constexpr std::uint64_t kTensorAlignment = 256;

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

class Placer {
 public:
  Placer(const Job& job, const OutputFacts& facts, JobLayout& layout)
      : job_(job), facts_(facts), layout_(layout) {}

  void place_prompt(std::size_t prompt) {
    for (std::int64_t index : job_.outputs.hidden_states) {
      place(prompt, "hidden_states." + std::to_string(index), index);
    }
    if (job_.outputs.last_hidden_state) place(prompt, "last_hidden_state", facts_.num_layers);
  }

 private:
  void place(std::size_t prompt, std::string tensor_name, std::int64_t hidden_state) {
    PlacedTensor tensor;
    tensor.name = std::move(tensor_name);
    tensor.hidden_state = hidden_state;
    tensor.shape = Shape{static_cast<std::int64_t>(job_.prompts[prompt].ids.size()), facts_.hidden_size};
    tensor.size_bytes = static_cast<std::uint64_t>(tensor.shape.num_elements()) * size_bytes(facts_.dtype);
    tensor.offset = layout_.size_bytes;
    layout_.size_bytes = aligned(layout_.size_bytes + tensor.size_bytes);
    layout_.prompts[prompt].push_back(std::move(tensor));
  }

  const Job& job_;
  const OutputFacts& facts_;
  JobLayout& layout_;
};

}  // namespace

JobLayout lay_out(const Job& job, std::span<const int> owners, int num_ranks, const OutputFacts& facts) {
  JobLayout layout;
  layout.prompts.resize(job.prompts.size());
  Placer placer(job, facts, layout);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::uint64_t begin = layout.size_bytes;
    for (std::size_t prompt = 0; prompt < job.prompts.size(); ++prompt) {
      if (owners[prompt] == rank && job.prompts[prompt].ok()) placer.place_prompt(prompt);
    }
    layout.ranks.push_back({begin, layout.size_bytes});
  }
  return layout;
}

}  // namespace gemmad
