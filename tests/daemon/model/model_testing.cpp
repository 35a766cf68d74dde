#include "tests/daemon/model/model_testing.h"

#include <random>
#include <utility>

#include "kernels/base/float_formats.h"
#include "tests/support/random_source.h"

namespace gemmad {
namespace {

constexpr std::int32_t kVocabulary = 512;

}  // namespace

PromptBatch batch_of(const std::vector<std::vector<std::int32_t>>& prompts) {
  PromptBatch batch;
  for (const auto& prompt : prompts)
    batch.add(prompt);
  return batch;
}

void CollectingSink::hidden_state(std::int64_t index, ConstTensorView x, const Moment& ready, bool) {
  if (states_.empty()) first_ = index;
  in_order_ = in_order_ && index == first_ + count();
  width_ = x.shape[1];
  std::vector<std::byte> bytes(x.size_bytes());
  // By the moment, on another stream: so that one which comes too early shows.
  ops_.wait_for(ops_.copy_stream(), ready);
  ops_.copy_to_host({bytes.data(), x.dtype, x.shape}, x, ops_.copy_stream());
  ops_.synchronize(ops_.copy_stream());
  std::vector<float>& state = states_.emplace_back(static_cast<std::size_t>(x.shape.num_elements()));
  for (std::size_t i = 0; i < state.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    state[i] = x.dtype == DType::kBF16 ? bf16_to_f32(load_u16(bytes.data(), at)) : load_f32(bytes.data(), at);
  }
}

ConstTensorView CollectingSink::rows(std::int64_t index, std::int64_t begin, std::int64_t end) const {
  return {states_.at(static_cast<std::size_t>(index - first_)).data() + begin * width_,
          DType::kF32,
          {end - begin, width_}};
}

EncoderTesting::EncoderTesting(const std::filesystem::path& folder, std::int64_t padded_length,
                               int num_threads)
    : EncoderTesting(folder, make_cpu_ops(num_threads), padded_length) {}

EncoderTesting::EncoderTesting(const std::filesystem::path& folder, std::unique_ptr<Ops> ops,
                               std::int64_t padded_length)
    : ops_(std::move(ops)) {
  const ModelFiles files = open_model(folder);
  load(*files.checkpoint(), files.config(), padded_length);
}

EncoderTesting::EncoderTesting(const TextConfig& config, std::int64_t padded_length, int num_threads)
    : ops_(make_cpu_ops(num_threads)) {
  load(RandomSource(config, 1), config, padded_length);
}

void EncoderTesting::load(const WeightSource& source, const TextConfig& config, std::int64_t padded_length) {
  TextWeights weights = load_text_weights(source, config, whole_model(config, 0), *ops_, {});
  workspace_ = std::make_unique<TextWorkspace>(config, ActivationWidths{weights.heads, weights.ffn_width},
                                               *ops_, kMaxTokens, padded_length);
  encoder_ = std::make_unique<TextEncoder>(config, std::move(weights), *workspace_, *ops_);
}

CollectingSink EncoderTesting::encode(const PromptBatch& batch) {
  CollectingSink sink(*ops_);
  NoLinks links;
  encoder_->forward(batch.packed(), links, sink);
  return sink;
}

TextConfig small_config(std::int64_t window) {
  TextConfig config{};
  config.model_type = "gemma3_text";
  config.vocab_size = kVocabulary;
  config.hidden_size = 48;
  config.intermediate_size = 80;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.sliding_window = window;
  config.query_pre_attn_scalar = 32;
  config.rms_norm_eps = 1e-6;
  config.rope_full = {1e6, 8.0};
  config.rope_sliding = {1e4, 1.0};
  config.layer_kinds = {LayerKind::kSliding, LayerKind::kFull, LayerKind::kSliding};
  return config;
}

TextConfig many_heads_config() {
  TextConfig config = small_config(16);
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 16;
  return config;
}

TestModel test_model(const std::string& name) {
  if (name == "random") return {many_heads_config(), std::make_shared<RandomSource>(many_heads_config(), 5)};
  const ModelFiles files = open_model(model_folder(name));
  return {files.config(), files.checkpoint()};
}

Replica replica_of(const TestModel& model, Strategy strategy, int num_ranks) {
  return make_shard_plan(model.config, {Mode::kSharded, strategy, 0, {}}, num_ranks).replicas.at(0);
}

std::vector<std::int32_t> random_prompt(std::int64_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids = {2};
  while (static_cast<std::int64_t>(ids.size()) < length)
    ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
  return ids;
}

}  // namespace gemmad
