#include "daemon/ctl/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "daemon/ctl/whole_file.h"

namespace gemmad {

namespace {

std::string header_text(const std::vector<TensorToWrite>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = {{"__metadata__", metadata}};
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.size_bytes}}};
    offset += tensor.size_bytes;
  }
  std::string text = header.dump();
  // Data begins at a multiple of 8, so that readers can map it as floats.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  WholeFile whole(file);
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t header_bytes = header.size();
  whole.write(&header_bytes, sizeof header_bytes);
  whole.write(header);
  for (const TensorToWrite& tensor : tensors)
    whole.write(tensor.data, tensor.size_bytes);
  whole.commit();
}

}  // namespace gemmad
