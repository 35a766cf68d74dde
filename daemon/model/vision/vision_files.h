// Gemma 3's vision tower and its projector in a model's directory.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "config/vision_config.h"
#include "daemon/model/mapped_tensors.h"
#include "daemon/model/model_file_error.h"

namespace gemmad {

/// All tensors of the tower and the projector, complete and of the right shapes, where they lie in the mapped
/// files; by canonical name (vision_tensors.h). Read-only after it was made; shares its mappings with its
/// copies.
class VisionFiles final : public MappedTensors {
 public:
  /// Maps the files that Checkpoint::open maps and takes from them what is the tower's. Reads headers only.
  /// Throws ModelFileError, naming file and reason; of tensors that are missing, surplus or of a wrong shape
  /// or type it names the first ten and counts the rest.
  static VisionFiles open(const std::filesystem::path& directory, const VisionConfig& config);

  const VisionConfig& config() const { return config_; }

 private:
  explicit VisionFiles(const VisionConfig& config) : config_(config) {}

  VisionConfig config_;
};

/// What a directory has for images: `files`, or the reason why there are none.
struct FoundVision {
  std::shared_ptr<const VisionFiles> files;
  std::string reason;
};

/// Looks through a directory whose text model is `text`. What is wrong with a tower is a reason, no error:
/// text can be encoded without. Blocks on the disk, for headers only.
FoundVision find_vision(const std::filesystem::path& directory, const TextConfig& text);

}  // namespace gemmad
