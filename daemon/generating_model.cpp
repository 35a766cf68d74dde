#include "daemon/generating_model.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace gemmad {

namespace {
// Of a model that does nothing but continue prompts: more than a chunk of a prompt and than an image.
constexpr std::int64_t kMostRows = 512;
}  // namespace

void GeneratingModel::choose(const Tokenizer* encoder_tokenizer, int rank, int num_ranks) {
  if (settings_.enhance_rank >= num_ranks) {
    throw std::runtime_error("enhance.rank is " + std::to_string(settings_.enhance_rank) +
                             "; the ranks are 0 to " + std::to_string(num_ranks - 1));
  }
  tokenizer_ = encoder_tokenizer;
  if (rank == 0) system_prompts_ = load_system_prompts(settings_);
  choose_separate(rank, num_ranks);
  if (rank == 0 && tokenizer_ != nullptr) check_system_prompts(system_prompts_, settings_, *tokenizer_);
  if (rank == 0 && !model().no_vision.empty())
    spdlog::info("prompts are enhanced without images: {}", model().no_vision);
}

void GeneratingModel::choose_separate(int rank, int num_ranks) {
  if (settings_.enhancer_model.empty()) return;
  try {
    separate_ = choose_enhancer(settings_);
    make_shard_plan(separate_->config, settings_for_generation(shard_settings(settings_)), num_ranks);
    if (rank != 0) return;
    own_tokenizer_.emplace(Tokenizer::load(*separate_->tokenizer_file));
    tokenizer_ = &*own_tokenizer_;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("enhancer.model: ") + error.what());
  }
}

GenerationHost& GeneratingModel::start(const DeploymentParts& parts, Residency& encoder) {
  std::optional<SeparateModel> separate;
  if (separate_) {
    // Its results are tokens, which take other ways.
    residency_.emplace(DeploymentParts{parts.bootstrap, parts.ops, separate_->config, parts.links,
                                       parts.results, nullptr, parts.places, std::nullopt, parts.num_threads,
                                       std::min(parts.max_batch_tokens, kMostRows), parts.exchange_timeout,
                                       parts.compute_timeout});
    separate.emplace(SeparateModel{*residency_, {separate_->weights, nullptr}, settings_.weights_cache});
  }
  const VisionSource* const vision = model().vision ? &*model().vision : nullptr;
  return host_.emplace(
      GeneratorParts{parts.bootstrap, parts.ops, model().config, vision, settings_.enhance_slots,
                     settings_.enhance_context, parts.compute_timeout},
      encoder, std::move(separate));
}

EnhancerFacts GeneratingModel::facts() const {
  return {separate_ ? settings_.enhancer_model : settings_.model, model().config.model_type,
          model().config.vocab_size, model().vision.has_value()};
}

RenderPrompt GeneratingModel::chat() const {
  std::optional<VisionConfig> vision;
  if (model().vision) vision = model().vision->config;
  return make_prompt_chat(*tokenizer_, model().config.vocab_size, vision, system_prompts_);
}

std::vector<std::int32_t> GeneratingModel::ends() const {
  const std::int32_t end_of_turn = tokenizer_->find("<end_of_turn>");
  return stop_ids(model().config, model().generation,
                  end_of_turn < 0 ? std::nullopt : std::optional(end_of_turn));
}

}  // namespace gemmad
