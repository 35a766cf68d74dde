// The text tensors of a checkpoint, where they lie in the mapped files.
#pragma once

#include <filesystem>

#include "config/model_config.h"
#include "daemon/model/mapped_tensors.h"
#include "daemon/model/model_file_error.h"

namespace gemmad {

/// All text tensors of a model, complete and of the right shapes. Read-only after it was made; owns the
/// mappings, shared.
class Checkpoint final : public MappedTensors {
 public:
  /// Maps `directory`/model.safetensors, or the shards of model.safetensors.index.json where there is no such
  /// file, and checks all of it against `config`. Reads headers only. Throws ModelFileError, naming file and
  /// reason; of tensors that are missing, surplus or of a wrong shape or type it names the first ten and
  /// counts the rest.
  static Checkpoint open(const std::filesystem::path& directory, const TextConfig& config);
};

}  // namespace gemmad
