#include "daemon/model/ltx/processor_tensors.h"

namespace gemmad {
namespace {

using Tensors = std::vector<ProcessorTensor>;

void add_linear(Tensors& tensors, const std::string& prefix, std::int64_t outputs, std::int64_t inputs,
                bool has_bias) {
  tensors.push_back({prefix + ".weight", {outputs, inputs}});
  if (has_bias) tensors.push_back({prefix + ".bias", {outputs}});
}

void add_block(Tensors& tensors, const ProcessorConfig& config, Modality modality, std::int64_t block) {
  const ConnectorConfig& connector = config.connector(modality);
  const std::int64_t width = connector.width();
  const std::string prefix = block_prefix(modality, block);
  for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"})
    add_linear(tensors, prefix + "attn1." + part, width, width, true);
  tensors.push_back({prefix + "attn1.q_norm.weight", {width}});
  tensors.push_back({prefix + "attn1.k_norm.weight", {width}});
  if (config.has_gates)
    add_linear(tensors, prefix + "attn1.to_gate_logits", connector.num_heads, width, true);
  add_linear(tensors, prefix + "ff.net.0.proj", kFfnFactor * width, width, config.has_ffn_bias);
  add_linear(tensors, prefix + "ff.net.2", width, kFfnFactor * width, config.has_ffn_bias);
}

}  // namespace

std::string projection_name(const ProcessorConfig& config, std::size_t projection, std::string_view suffix) {
  std::string name = "text_embedding_projection.";
  if (config.variant == ProcessorVariant::kV2) name += projection == 0 ? "video_" : "audio_";
  return name.append("aggregate_embed.").append(suffix);
}

std::string connector_prefix(Modality modality) {
  return std::string("model.diffusion_model.") + (modality == Modality::kVideo ? "video" : "audio") +
         "_embeddings_connector.";
}

std::string block_prefix(Modality modality, std::int64_t block) {
  return connector_prefix(modality) + "transformer_1d_blocks." + std::to_string(block) + ".";
}

std::vector<ProcessorTensor> expected_tensors(const ProcessorConfig& config, const StateSizes& states) {
  Tensors tensors;
  for (std::size_t projection = 0; projection < config.num_projections(); ++projection) {
    const std::int64_t width = config.projection_width(projection);
    tensors.push_back({projection_name(config, projection, "weight"),
                       {width, states.hidden_size * states.num_states},
                       true});
    if (config.variant == ProcessorVariant::kV2)
      tensors.push_back({projection_name(config, projection, "bias"), {width}});
  }
  for (const Modality modality : kModalities) {
    const ConnectorConfig& connector = config.connector(modality);
    tensors.push_back(
        {connector_prefix(modality) + "learnable_registers", {kNumRegisters, connector.width()}});
    for (std::int64_t block = 0; block < connector.num_layers; ++block)
      add_block(tensors, config, modality, block);
  }
  return tensors;
}

}  // namespace gemmad
