#include "daemon/model/model_files.h"

#include <utility>

#include "daemon/model/file_sniff.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/mapped_file.h"

namespace gemmad {
namespace {

// For files whose contents others parse: what is plainly not the file is named here, in the same words
// everywhere.
void check_present(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw ModelFileError(file.string() + ": missing; a model's directory must hold it");
  }
  try {
    if (const auto reason = foreign_content(MappedFile(file).bytes())) {
      throw ModelFileError(file.string() + ": " + *reason);
    }
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

}  // namespace

ModelFiles::ModelFiles(std::filesystem::path directory, TextConfig config, Checkpoint checkpoint)
    : directory_(std::move(directory)),
      config_(std::move(config)),
      checkpoint_(std::make_shared<const Checkpoint>(std::move(checkpoint))) {}

TextConfig open_model_config(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    throw ModelFileError(directory.string() + ": not a directory; name one that holds a Hugging Face model");
  }
  check_present(directory / "config.json");
  return load_model_config(directory / "config.json");
}

std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) return std::nullopt;
  check_present(file);
  return file;
}

ModelFiles open_model(const std::filesystem::path& directory) {
  TextConfig config = open_model_config(directory);
  check_present(directory / "tokenizer.json");
  Checkpoint checkpoint = Checkpoint::open(directory, config);
  return ModelFiles(directory, std::move(config), std::move(checkpoint));
}

}  // namespace gemmad
