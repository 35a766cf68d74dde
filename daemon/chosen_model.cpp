#include "daemon/chosen_model.h"

#include <utility>

#include "config/model_presets.h"
#include "daemon/model/model_files.h"
#include "daemon/model/random_weights.h"

namespace gemmad {

ChosenModel choose_model(const DaemonConfig& settings, int num_threads) {
  if (settings.weights == Weights::kFiles) {
    const ModelFiles files = open_model(settings.model);
    return {files.config(), files.checkpoint(), files.tokenizer_file()};
  }
  ChosenModel chosen;
  if (settings.preset != Preset::kNone) {
    chosen.config = preset_config(settings.preset);
  } else {
    chosen.config = open_model_config(settings.model);
    chosen.tokenizer_file = find_tokenizer(settings.model);
  }
  const auto seed = static_cast<std::uint64_t>(settings.weights_seed);
  chosen.weights = std::make_shared<const RandomWeights>(chosen.config, seed, num_threads);
  return chosen;
}

}  // namespace gemmad
