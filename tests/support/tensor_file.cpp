#include "tests/support/tensor_file.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gemmad {

TensorFile::TensorFile(const std::filesystem::path& file)
    : file_(file), header_(parse_safetensors_header(file_.bytes(), file.string())) {}

const SafetensorsEntry* TensorFile::find(const std::string& name) const {
  for (const SafetensorsEntry& entry : header_.tensors) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

bool TensorFile::has(const std::string& name) const {
  return find(name) != nullptr;
}

ConstTensorView TensorFile::get(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr || !entry->dtype.dtype)
    throw std::runtime_error(file_.path().string() + ": no " + name);
  return {file_.bytes().data() + entry->begin, *entry->dtype.dtype, Shape(entry->shape)};
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string, std::less<>>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata)
    header["__metadata__"][key] = value;
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0)
    text += ' ';
  return safetensors_bytes(text, data);
}

std::vector<TensorToWrite> read_tensors(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  std::vector<TensorToWrite> tensors;
  for (const SafetensorsEntry& entry : parse_safetensors_header(mapped.bytes(), file.string()).tensors) {
    const auto bytes = mapped.bytes().subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back({entry.name, std::string(entry.dtype.name), entry.shape,
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  return tensors;
}

}  // namespace gemmad
