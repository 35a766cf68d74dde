// Which files hold a checkpoint's tensors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gemmad {

/// The files of a checkpoint, in the order of their names.
struct ShardList {
  std::vector<std::filesystem::path> files;
  /// Tensor name (as in the files) -> file name, where there is an index.
  std::optional<std::map<std::string, std::string>> weight_map;
  std::filesystem::path index_file;  // where there is one
};

/// Looks for `directory`/model.safetensors, else for model.safetensors.index.json. Checks that the index
/// names plain files that are there. Throws ModelFileError naming the file: neither is there, the index is
/// not JSON or not of the right form, a shard is missing or not in the directory itself.
ShardList find_shards(const std::filesystem::path& directory);

}  // namespace gemmad
