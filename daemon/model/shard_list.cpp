#include "daemon/model/shard_list.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/model/file_sniff.h"
#include "daemon/model/model_file_error.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/mapped_file.h"

namespace gemmad {
namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{32} << 20;  // a model of 62 layers needs 0.2 MB

nlohmann::json read_index(const std::filesystem::path& file) {
  try {
    const MappedFile mapped(file);
    if (const auto reason = foreign_content(mapped.bytes()))
      throw ModelFileError(file.string() + ": " + *reason);
    const auto bytes = mapped.bytes();
    return parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string(),
                             kMaxIndexBytes);
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  } catch (const ConfigError& error) {
    throw ModelFileError(error.what());
  }
}

// A shard's name must not lead out of the directory.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

ShardList list_indexed(const std::filesystem::path& directory, const std::filesystem::path& index_file) {
  const nlohmann::json index = read_index(index_file);
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_object() || found->empty()) {
    throw ModelFileError(index_file.string() + ": key 'weight_map' is missing, empty or not an object");
  }
  ShardList list;
  list.index_file = index_file;
  list.weight_map.emplace();
  std::set<std::string> names;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      throw ModelFileError(index_file.string() + ": tensor '" + printable(tensor, 200) +
                           "': its file must be a plain file name, is " +
                           printable(file.dump(-1, ' ', true), 200));
    }
    names.insert(file.get<std::string>());
    list.weight_map->emplace(tensor, file.get<std::string>());
  }
  for (const std::string& name : names) {
    list.files.push_back(directory / name);
    if (!std::filesystem::is_regular_file(list.files.back())) {
      throw ModelFileError(list.files.back().string() + ": missing, but " + index_file.filename().string() +
                           " names it; download the whole model");
    }
  }
  return list;
}

}  // namespace

ShardList find_shards(const std::filesystem::path& directory) {
  const std::filesystem::path single = directory / "model.safetensors";
  const std::filesystem::path index_file = directory / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) return {{single}, std::nullopt, {}};
  if (std::filesystem::exists(index_file, ignored)) return list_indexed(directory, index_file);
  throw ModelFileError(
      directory.string() +
      ": neither model.safetensors nor model.safetensors.index.json is there; name a directory that "
      "holds a Hugging Face model");
}

}  // namespace gemmad
