#include "daemon/model/vision/vision_files.h"

#include <map>
#include <optional>
#include <utility>

#include "daemon/model/shard_list.h"
#include "daemon/model/tensor_problems.h"
#include "daemon/model/vision/vision_tensors.h"

namespace gemmad {
namespace {

struct FoundTensor {
  SafetensorsEntry entry;
  std::shared_ptr<const MappedFile> file;
};

using FoundTensors = std::map<std::string, FoundTensor, std::less<>>;

void collect(SafetensorsHeader header, const std::shared_ptr<const MappedFile>& file, FoundTensors& found,
             TensorProblems& problems) {
  for (SafetensorsEntry& entry : header.tensors) {
    const std::optional<std::string> name = canonical_vision_name(entry.name);
    if (!name) continue;
    const auto [place, is_new] = found.try_emplace(*name);
    if (is_new) {
      place->second = {std::move(entry), file};
    } else {
      problems.add("surplus " + quoted_name(entry.name) + ", the same as " +
                   quoted_name(place->second.entry.name));
    }
  }
}

}  // namespace

VisionFiles VisionFiles::open(const std::filesystem::path& directory, const VisionConfig& config) {
  const ShardList shards = find_shards(directory);
  const std::string subject = shards.weight_map ? shards.index_file.string() : shards.files.front().string();
  FoundTensors found;
  TensorProblems problems;
  for (const std::filesystem::path& path : shards.files) {
    const std::shared_ptr<const MappedFile> file = map_model_file(path);
    collect(parse_safetensors_header(file->bytes(), path.string()), file, found, problems);
  }
  if (found.empty()) {
    throw ModelFileError(subject +
                         ": holds no vision tower, although config.json has a vision_config; images need the "
                         "model's files with 'vision_tower' and 'multi_modal_projector'");
  }

  VisionFiles opened(config);
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const auto place = found.find(expected.name);
    if (place == found.end()) {
      problems.add_missing(expected.name, expected.shape);
      continue;
    }
    if (problems.check_weight(place->second.entry, expected.shape))
      opened.add(expected.name, place->second.entry, place->second.file);
    found.erase(place);
  }
  // A tower with more to it would be computed wrongly.
  for (const auto& [name, tensor] : found)
    problems.add("surplus " + quoted_name(tensor.entry.name));
  problems.throw_if_any(subject, "config.json's vision_config");
  return opened;
}

FoundVision find_vision(const std::filesystem::path& directory, const TextConfig& text) {
  const std::filesystem::path config_file = directory / "config.json";
  try {
    const std::optional<VisionConfig> config = load_vision_config(config_file, text);
    if (!config)
      return {nullptr, config_file.string() + ": has no vision_config, so the model reads text only"};
    return {std::make_shared<const VisionFiles>(VisionFiles::open(directory, *config)), ""};
  } catch (const ConfigError& error) {
    return {nullptr, error.what()};
  } catch (const ModelFileError& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace gemmad
