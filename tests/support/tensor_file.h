// Reading and making safetensors files in tests.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/model/safetensors_header.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/tensor.h"
#include "tests/support/scratch_folder.h"

namespace gemmad {

/// A safetensors file, mapped. Views are valid while it lives.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& file);
  bool has(const std::string& name) const;
  /// Throws std::runtime_error for a name that is not there or a type that has no DType.
  ConstTensorView get(const std::string& name) const;

 private:
  const SafetensorsEntry* find(const std::string& name) const;

  MappedFile file_;
  SafetensorsHeader header_;
};

/// A tensor to be written; the bytes are taken as they are, right or wrong.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// The bytes of a safetensors file of `tensors`, in order, with `metadata` where there is any.
std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string, std::less<>>& metadata = {});

/// The bytes of a file with this header text and this data after it.
std::string safetensors_bytes(const std::string& header, const std::string& data);

/// All tensors of a file, to change and write again.
std::vector<TensorToWrite> read_tensors(const std::filesystem::path& file);

}  // namespace gemmad
