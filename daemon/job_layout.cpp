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
  if (!job.prompts[prompt].is_computed()) return tensors;
  const auto num_tokens = static_cast<std::int64_t>(job.prompts[prompt].ids.size());
  const auto add = [&](std::string name, OutputId output, std::int64_t num_rows, std::int64_t width) {
    PlacedTensor tensor;
    tensor.name = std::move(name);
    tensor.output = output;
    tensor.shape = Shape{num_rows, width};
    tensor.size_bytes = static_cast<std::uint64_t>(tensor.shape.num_elements()) * size_bytes(facts.dtype);
    tensors.push_back(std::move(tensor));
  };
  const auto add_of_modalities = [&](const std::string& name, OutputKind kind, std::int64_t num_rows) {
    for (const Modality modality : kModalities) {
      if (!job.outputs.wants(modality)) continue;
      const auto index = static_cast<std::size_t>(modality);
      add(name + (modality == Modality::kVideo ? ".video" : ".audio"),
          {kind, static_cast<std::int64_t>(index)}, num_rows, facts.processor_widths[index]);
    }
  };
  for (const std::int64_t index : job.outputs.hidden_states)
    add("hidden_states." + std::to_string(index), {OutputKind::kHiddenState, index}, num_tokens,
        facts.hidden_size);
  if (job.outputs.last_hidden_state)
    add("last_hidden_state", {OutputKind::kHiddenState, facts.num_layers}, num_tokens, facts.hidden_size);
  if (job.outputs.features) add_of_modalities("features", OutputKind::kFeatures, num_tokens);
  if (job.outputs.embeddings) add_of_modalities("embeddings", OutputKind::kEmbeddings, facts.sequence_length);
  return tensors;
}

std::size_t route_of(const PlacedTensor& tensor, const JobPlan& plan, std::size_t prompt,
                     const RouteTable& routes) {
  if (tensor.output.kind == OutputKind::kHiddenState)
    return routes.index(plan.cut, plan.replicas[prompt], tensor.output.index);
  return routes.of_rank(plan.processors[prompt][static_cast<std::size_t>(tensor.output.index)]);
}

}  // namespace

JobLayout lay_out(const Job& job, const JobPlan& plan, const RouteTable& routes, const OutputFacts& facts) {
  JobLayout layout;
  for (std::size_t prompt = 0; prompt < job.prompts.size(); ++prompt) {
    layout.prompts.push_back(tensors_of(job, prompt, facts));
    for (PlacedTensor& tensor : layout.prompts.back())
      tensor.route = route_of(tensor, plan, prompt, routes);
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
