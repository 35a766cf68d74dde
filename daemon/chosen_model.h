// Which model the daemon runs: one with files, or one that is made up.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/daemon_config.h"
#include "config/generation_config.h"
#include "config/model_config.h"
#include "config/processor_config.h"
#include "daemon/model/vision/vision_source.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

struct ChosenModel {
  TextConfig config;
  std::shared_ptr<const WeightOrigin> weights;
  std::optional<std::filesystem::path> tokenizer_file;  // not checked beyond what a look tells
  std::optional<VisionSource> vision;                   // where it can look at images
  std::string no_vision;                                // why it cannot; of models with files
  std::optional<GenerationConfig> generation;           // what its files say of how it is continued

  struct Processor {
    ProcessorConfig config;
    std::shared_ptr<const WeightOrigin> weights;
  };
  std::optional<Processor> processor;  // of embeddings, where the settings name one
};

/// The model that `settings` ask for, which validate_for_run has let through; no weights are read yet. Blocks
/// on the disk. Random weights are made with `num_threads` threads. Throws ConfigError and ModelFileError as
/// open_model does.
ChosenModel choose_model(const DaemonConfig& settings, int num_threads);

/// The same for the model that continues prompts, where they name one of its own.
std::optional<ChosenModel> choose_enhancer(const DaemonConfig& settings);

}  // namespace gemmad
