#include "daemon/chosen_model.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "config/gemma_pairing.h"
#include "config/model_presets.h"
#include "daemon/model/ltx/processor_files.h"
#include "daemon/model/ltx/random_processor.h"
#include "daemon/model/model_files.h"
#include "daemon/model/random_weights.h"
#include "daemon/model/vision/random_vision.h"
#include "daemon/model/vision/vision_files.h"

namespace gemmad {

namespace {

/// What a checkpoint says of the Gemma that it goes with is held against the model's.
ChosenModel::Processor processor_of_files(const DaemonConfig& settings, const TextConfig& model) {
  std::optional<std::filesystem::path> projections;
  if (!settings.projections.empty()) projections = settings.projections;
  auto files = std::make_shared<const ProcessorFiles>(
      ProcessorFiles::open(settings.embeddings_processor, projections, state_sizes(model)));
  if (const auto doubt =
          check_pairing(files->pairing(), model.model_type, std::nullopt, settings.embeddings_processor))
    spdlog::warn("{}", *doubt);
  return {files->config(), files};
}

/// What a model's directory says beside its text model.
void add_generation(const std::filesystem::path& directory, ChosenModel& chosen) {
  chosen.generation = load_generation_config(directory / "generation_config.json");
  FoundVision vision = find_vision(directory, chosen.config);
  if (vision.files) chosen.vision = {vision.files->config(), vision.files};
  chosen.no_vision = std::move(vision.reason);
}

ChosenModel chosen_files(const std::filesystem::path& directory) {
  const ModelFiles files = open_model(directory);
  ChosenModel chosen{files.config(), files.checkpoint(), files.tokenizer_file(), {}, {}, {}, {}};
  add_generation(directory, chosen);
  return chosen;
}

ChosenModel chosen_text(const DaemonConfig& settings, std::uint64_t seed, int num_threads) {
  if (settings.weights == Weights::kFiles) return chosen_files(settings.model);
  ChosenModel chosen;
  if (settings.preset != Preset::kNone) {
    chosen.config = preset_config(settings.preset);
  } else {
    chosen.config = open_model_config(settings.model);
    chosen.tokenizer_file = find_tokenizer(settings.model);
    const auto vision =
        load_vision_config(std::filesystem::path(settings.model) / "config.json", chosen.config);
    if (vision) chosen.vision = {*vision, std::make_shared<const RandomVision>(*vision, seed, num_threads)};
  }
  chosen.weights = std::make_shared<const RandomWeights>(chosen.config, seed, num_threads);
  return chosen;
}

}  // namespace

ChosenModel choose_model(const DaemonConfig& settings, int num_threads) {
  const auto seed = static_cast<std::uint64_t>(settings.weights_seed);
  ChosenModel chosen = chosen_text(settings, seed, num_threads);
  if (!settings.embeddings_processor.empty()) {
    chosen.processor = processor_of_files(settings, chosen.config);
  } else if (settings.processor_preset != ProcessorPreset::kNone) {
    const ProcessorConfig config = processor_preset(settings.processor_preset);
    chosen.processor = {config, std::make_shared<const RandomProcessor>(config, state_sizes(chosen.config),
                                                                        seed, num_threads)};
  }
  return chosen;
}

std::optional<ChosenModel> choose_enhancer(const DaemonConfig& settings) {
  if (settings.enhancer_model.empty()) return std::nullopt;
  return chosen_files(settings.enhancer_model);
}

}  // namespace gemmad
