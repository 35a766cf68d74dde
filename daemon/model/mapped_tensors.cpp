#include "daemon/model/mapped_tensors.h"

#include <set>
#include <utility>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

namespace {

void check_unchanged(const MappedFile& file) {
  try {
    file.check_unchanged();
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

}  // namespace

void MappedTensors::add(const std::string& name, const SafetensorsEntry& entry,
                        std::shared_ptr<const MappedFile> file) {
  const ConstTensorView view{file->bytes().data() + entry.begin, entry.dtype.dtype.value(),
                             Shape(entry.shape)};
  if (tensors_.emplace(name, MappedTensor{view, std::move(file)}).second)
    size_bytes_ += entry.end - entry.begin;
}

HostTensor MappedTensors::tensor(std::string_view name) const {
  const MappedTensor& tensor = find(name);
  check_unchanged(*tensor.file);
  return {tensor.view, tensor.file};
}

void MappedTensors::check_readable() const {
  std::set<const MappedFile*> files;
  for (const auto& [name, tensor] : tensors_)
    files.insert(tensor.file.get());
  for (const MappedFile* file : files)
    check_unchanged(*file);
}

void MappedTensors::release(const HostTensor& tensor) const {
  static_cast<const MappedFile*>(tensor.owner.get())
      ->release_pages({tensor.view.as<std::byte>(), tensor.view.size_bytes()});
}

std::vector<WeightEntry> MappedTensors::entries() const {
  std::vector<WeightEntry> entries;
  for (const auto& [name, tensor] : tensors_)
    entries.push_back({name, tensor.view.dtype, tensor.view.shape});
  return entries;
}

void MappedTensors::read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const {
  const MappedTensor& tensor = find(name);
  const auto in_file = tensor.view.as<std::byte>() - tensor.file->bytes().data();
  try {
    tensor.file->read(static_cast<std::uint64_t>(in_file) + offset, to);
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

const MappedTensor& MappedTensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw ModelFileError("no tensor '" + std::string(name) + "' in the checkpoint");
  return found->second;
}

}  // namespace gemmad
