// A model's directory, checked as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "config/model_config.h"
#include "daemon/model/checkpoint.h"
#include "daemon/model/model_file_error.h"

namespace gemmad {

/// A directory in the Hugging Face form, open and checked. Movable; shares the mappings of its weights.
class ModelFiles {
 public:
  ModelFiles(std::filesystem::path directory, TextConfig config, Checkpoint checkpoint);

  const TextConfig& config() const { return config_; }
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  /// The tokenizer.json; present and not empty when the directory was opened. Its contents are the
  /// tokenizer's to check.
  std::filesystem::path tokenizer_file() const { return directory_ / "tokenizer.json"; }

 private:
  std::filesystem::path directory_;
  TextConfig config_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

/// Checks everything that can be checked without reading the weights: config.json, tokenizer.json, every
/// header, the index, and the table of tensors against the configuration. Blocks on the disk, for headers
/// only. Throws ConfigError for what config.json says, ModelFileError for all else; each names the file.
ModelFiles open_model(const std::filesystem::path& directory);

/// The config.json of a directory that needs to hold nothing else. Throws as open_model does.
TextConfig open_model_config(const std::filesystem::path& directory);

/// The tokenizer.json of a directory, where there is one. Throws ModelFileError for what is plainly none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& directory);

}  // namespace gemmad
