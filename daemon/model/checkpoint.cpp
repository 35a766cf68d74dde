#include "daemon/model/checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include "config/config_error.h"
#include "daemon/model/safetensors_header.h"
#include "daemon/model/shard_list.h"
#include "daemon/model/tensor_names.h"
#include "kernels/base/file_descriptor.h"

namespace gemmad {
namespace {

constexpr std::size_t kMaxNamedProblems = 10;

// One tensor of the text model as it lies in a file, not yet held against the table.
struct FoundTensor {
  std::string file_name;  // its name in the file
  SafetensorsEntry entry;
  std::shared_ptr<const MappedFile> file;
};

using FoundTensors = std::map<std::string, FoundTensor, std::less<>>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

bool same_shape(const std::vector<std::int64_t>& found, const Shape& expected) {
  return std::equal(found.begin(), found.end(), expected.extents().begin(), expected.extents().end());
}

bool is_weight_type(const SafetensorsDType& dtype) {
  return dtype.dtype == DType::kBF16 || dtype.dtype == DType::kF16 || dtype.dtype == DType::kF32;
}

// Everything that is wrong with a checkpoint's tensors, so that one look shows what kind of mistake it is.
class Problems {
 public:
  void add(std::string problem) {
    if (named_.size() < kMaxNamedProblems) named_.push_back(std::move(problem));
    ++count_;
  }

  void throw_if_any(const std::string& subject) const {
    if (count_ == 0) return;
    std::string text =
        subject + ": " + std::to_string(count_) +
        (count_ == 1 ? " tensor does not fit config.json: " : " tensors do not fit config.json: ");
    for (std::size_t i = 0; i < named_.size(); ++i)
      text += (i > 0 ? "; " : "") + named_[i];
    if (count_ > named_.size()) text += "; and " + std::to_string(count_ - named_.size()) + " more";
    throw ModelFileError(text);
  }

 private:
  std::vector<std::string> named_;
  std::size_t count_ = 0;
};

std::string quote(const std::string& name) {
  return std::string("'").append(printable(name, 200)).append("'");
}

std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path) {
  try {
    return std::make_shared<const MappedFile>(path);
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

// An index and its shards must tell of the same tensors.
void check_index(const ShardList& shards, const std::filesystem::path& file,
                 const SafetensorsHeader& header) {
  if (!shards.weight_map) return;
  std::set<std::string_view> in_shard;
  for (const SafetensorsEntry& entry : header.tensors) {
    const auto mapped = shards.weight_map->find(entry.name);
    if (mapped == shards.weight_map->end() || mapped->second != file.filename().string()) {
      throw ModelFileError(file.string() + ": holds tensor " + quote(entry.name) + ", which " +
                           shards.index_file.filename().string() + " does not place there");
    }
    in_shard.insert(entry.name);
  }
  for (const auto& [tensor, shard] : *shards.weight_map) {
    if (shard == file.filename().string() && !in_shard.contains(tensor)) {
      throw ModelFileError(file.string() + ": lacks tensor " + quote(tensor) + ", which " +
                           shards.index_file.filename().string() + " places there");
    }
  }
}

void collect(SafetensorsHeader header, const std::shared_ptr<const MappedFile>& file,
             const TextConfig& config, FoundTensors& found, Problems& problems) {
  for (SafetensorsEntry& entry : header.tensors) {
    const std::string file_name = entry.name;
    const TensorIdentity identity = identify_tensor(file_name);
    if (identity.role == TensorRole::kVision) continue;
    if (identity.role == TensorRole::kUnknown) {
      problems.add("surplus " + quote(file_name));
    } else if (identity.role == TensorRole::kHead) {
      const Shape expected{config.vocab_size, config.hidden_size};
      if (!same_shape(entry.shape, expected)) {
        problems.add(quote(file_name) + " has shape " + shape_text(entry.shape) + ", expected " +
                     expected.text());
      }
    } else {
      const auto [place, is_new] = found.try_emplace(std::string(identity.name));
      if (!is_new) {
        problems.add("surplus " + quote(file_name) + ", the same as " + quote(place->second.file_name));
      } else {
        place->second = {file_name, std::move(entry), file};
      }
    }
  }
}

CheckpointTensor view_of(const FoundTensor& found, const Shape& shape) {
  const std::byte* data = found.file->bytes().data() + found.entry.begin;
  return {{data, *found.entry.dtype.dtype, shape}, found.file};
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& directory, const TextConfig& config) {
  const ShardList shards = find_shards(directory);
  FoundTensors found;
  Problems problems;
  for (const std::filesystem::path& path : shards.files) {
    const std::shared_ptr<const MappedFile> file = map_file(path);
    SafetensorsHeader header = parse_safetensors_header(file->bytes(), path.string());
    check_index(shards, path, header);
    collect(std::move(header), file, config, found, problems);
  }

  Checkpoint checkpoint;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const auto place = found.find(expected.name);
    if (place == found.end()) {
      problems.add("missing '" + expected.name + "' " + expected.shape.text());
      continue;
    }
    const FoundTensor& tensor = place->second;
    if (!same_shape(tensor.entry.shape, expected.shape)) {
      problems.add(quote(tensor.file_name) + " has shape " + shape_text(tensor.entry.shape) + ", expected " +
                   expected.shape.text());
    } else if (!is_weight_type(tensor.entry.dtype)) {
      problems.add(quote(tensor.file_name) + " has dtype " + std::string(tensor.entry.dtype.name) +
                   ", expected BF16, F16 or F32");
    } else {
      checkpoint.size_bytes_ += tensor.entry.end - tensor.entry.begin;
      checkpoint.tensors_.emplace(expected.name, view_of(tensor, expected.shape));
    }
    found.erase(place);
  }
  for (const auto& [name, tensor] : found)
    problems.add("surplus " + quote(tensor.file_name));
  problems.throw_if_any(shards.weight_map ? shards.index_file.string() : shards.files.front().string());
  return checkpoint;
}

HostTensor Checkpoint::tensor(std::string_view name) const {
  const CheckpointTensor& tensor = find(name);
  return {tensor.view, tensor.file};
}

void Checkpoint::release(const HostTensor& tensor) const {
  static_cast<const MappedFile*>(tensor.owner.get())
      ->release_pages({tensor.view.as<std::byte>(), tensor.view.size_bytes()});
}

std::vector<WeightEntry> Checkpoint::entries() const {
  std::vector<WeightEntry> entries;
  for (const auto& [name, tensor] : tensors_)
    entries.push_back({name, tensor.view.dtype, tensor.view.shape});
  return entries;
}

void Checkpoint::read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const {
  const CheckpointTensor& tensor = find(name);
  const auto in_file = tensor.view.as<std::byte>() - tensor.file->bytes().data();
  try {
    tensor.file->read(static_cast<std::uint64_t>(in_file) + offset, to);
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

const CheckpointTensor& Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw ModelFileError("no tensor '" + std::string(name) + "' in the checkpoint");
  return found->second;
}

}  // namespace gemmad
