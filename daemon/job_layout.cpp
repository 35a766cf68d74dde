#include "daemon/job_layout.h"

namespace gemmad {

namespace {

constexpr std::uint64_t kTensorAlignment = 256;

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

/// The tensors of one prompt in the order in which they were asked for, without a place.
std::vector<PlacedTensor> tensors_of(const Job& job, std::size_t prompt, const OutputFacts& facts) {
  std::vector<PlacedTensor> tensors;
  if (!job.prompts[prompt].ok()) return tensors;
  const auto add = [&](std::string name, std::int64_t hidden_state) {
    PlacedTensor tensor;
    tensor.name = std::move(name);
    tensor.hidden_state = hidden_state;
    tensor.shape = Shape{static_cast<std::int64_t>(job.prompts[prompt].ids.size()), facts.hidden_size};
    tensor.size_bytes = static_cast<std::uint64_t>(tensor.shape.num_elements()) * size_bytes(facts.dtype);
    tensors.push_back(std::move(tensor));
  };
  for (const std::int64_t index : job.outputs.hidden_states)
    add("hidden_states." + std::to_string(index), index);
  if (job.outputs.last_hidden_state) add("last_hidden_state", facts.num_layers);
  return tensors;
}

}  // namespace

JobLayout lay_out(const Job& job, const JobPlan& plan, const RouteTable& routes, const OutputFacts& facts) {
  JobLayout layout;
  for (std::size_t prompt = 0; prompt < job.prompts.size(); ++prompt) {
    layout.prompts.push_back(tensors_of(job, prompt, facts));
    for (PlacedTensor& tensor : layout.prompts.back())
      tensor.route = routes.index(plan.cut, plan.replicas[prompt], tensor.hidden_state);
  }
  for (std::size_t route = 0; route < routes.routes().size(); ++route) {
    const std::uint64_t begin = layout.size_bytes;
    for (std::vector<PlacedTensor>& tensors : layout.prompts) {
      for (PlacedTensor& tensor : tensors) {
        if (tensor.route != route) continue;
        tensor.offset = layout.size_bytes;
        layout.size_bytes = aligned(layout.size_bytes + tensor.size_bytes);
      }
    }
    layout.routes.push_back({begin, layout.size_bytes});
  }
  return layout;
}

}  // namespace gemmad
