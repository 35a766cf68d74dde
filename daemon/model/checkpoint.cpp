#include "daemon/model/checkpoint.h"

#include <map>
#include <set>
#include <utility>

#include "config/config_error.h"
#include "daemon/model/safetensors_header.h"
#include "daemon/model/shard_list.h"
#include "daemon/model/tensor_names.h"
#include "daemon/model/tensor_problems.h"

namespace gemmad {
namespace {

// One tensor of the text model as it lies in a file, not yet held against the table.
struct FoundTensor {
  std::string file_name;  // its name in the file
  SafetensorsEntry entry;
  std::shared_ptr<const MappedFile> file;
};

using FoundTensors = std::map<std::string, FoundTensor, std::less<>>;

// An index and its shards must tell of the same tensors.
void check_index(const ShardList& shards, const std::filesystem::path& file,
                 const SafetensorsHeader& header) {
  if (!shards.weight_map) return;
  std::set<std::string_view> in_shard;
  for (const SafetensorsEntry& entry : header.tensors) {
    const auto mapped = shards.weight_map->find(entry.name);
    if (mapped == shards.weight_map->end() || mapped->second != file.filename().string()) {
      throw ModelFileError(file.string() + ": holds tensor " + quoted_name(entry.name) + ", which " +
                           shards.index_file.filename().string() + " does not place there");
    }
    in_shard.insert(entry.name);
  }
  for (const auto& [tensor, shard] : *shards.weight_map) {
    if (shard == file.filename().string() && !in_shard.contains(tensor)) {
      throw ModelFileError(file.string() + ": lacks tensor " + quoted_name(tensor) + ", which " +
                           shards.index_file.filename().string() + " places there");
    }
  }
}

void collect(SafetensorsHeader header, const std::shared_ptr<const MappedFile>& file,
             const TextConfig& config, FoundTensors& found, TensorProblems& problems) {
  for (SafetensorsEntry& entry : header.tensors) {
    const std::string file_name = entry.name;
    const TensorIdentity identity = identify_tensor(file_name);
    if (identity.role == TensorRole::kVision) continue;
    if (identity.role == TensorRole::kUnknown) {
      problems.add("surplus " + quoted_name(file_name));
    } else if (identity.role == TensorRole::kHead) {
      problems.check_shape(entry, {config.vocab_size, config.hidden_size});
    } else {
      const auto [place, is_new] = found.try_emplace(std::string(identity.name));
      if (!is_new) {
        problems.add("surplus " + quoted_name(file_name) + ", the same as " +
                     quoted_name(place->second.file_name));
      } else {
        place->second = {file_name, std::move(entry), file};
      }
    }
  }
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& directory, const TextConfig& config) {
  const ShardList shards = find_shards(directory);
  FoundTensors found;
  TensorProblems problems;
  for (const std::filesystem::path& path : shards.files) {
    const std::shared_ptr<const MappedFile> file = map_model_file(path);
    SafetensorsHeader header = parse_safetensors_header(file->bytes(), path.string());
    check_index(shards, path, header);
    collect(std::move(header), file, config, found, problems);
  }

  Checkpoint checkpoint;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const auto place = found.find(expected.name);
    if (place == found.end()) {
      problems.add_missing(expected.name, expected.shape);
      continue;
    }
    const FoundTensor& tensor = place->second;
    if (problems.check_weight(tensor.entry, expected.shape))
      checkpoint.add(expected.name, tensor.entry, tensor.file);
    found.erase(place);
  }
  for (const auto& [name, tensor] : found)
    problems.add("surplus " + quoted_name(tensor.file_name));
  problems.throw_if_any(shards.weight_map ? shards.index_file.string() : shards.files.front().string(),
                        "config.json");
  return checkpoint;
}

}  // namespace gemmad
