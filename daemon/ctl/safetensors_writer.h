// Writes a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gemmad {

/// A tensor to be written. Does not own `data`, which must live until the file is written.
struct TensorToWrite {
  std::string name;
  std::string dtype;  // as safetensors names it: "F32"
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
  std::size_t size_bytes = 0;
};

/// Writes `file` whole or not at all, as a WholeFile. Names must differ. Blocks on the disk. Throws
/// SystemError.
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace gemmad
