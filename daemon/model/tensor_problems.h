// What can be wrong with the tensors of a file, said in the same words for every kind of file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/safetensors_header.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Maps a file of a model. Throws ModelFileError.
std::shared_ptr<const MappedFile> map_model_file(const std::filesystem::path& path);

/// A tensor's name fit for a message, in quotes.
std::string quoted_name(const std::string& name);

/// Everything that is wrong with a file's tensors, so that one look shows what kind of mistake it is.
class TensorProblems {
 public:
  void add(std::string problem);
  /// Adds what is wrong with a tensor that must be weights of `expected` shape: BF16, F16 or F32. True when
  /// nothing is.
  bool check_weight(const SafetensorsEntry& entry, const Shape& expected);
  /// Adds that a tensor is not there.
  void add_missing(const std::string& name, const Shape& expected);
  bool check_shape(const SafetensorsEntry& entry, const Shape& expected);

  /// Throws ModelFileError: "SUBJECT: 2 tensors do not fit CONFIG: ...", the first ten, and how many more.
  void throw_if_any(const std::string& subject, const std::string& config) const;

 private:
  std::vector<std::string> named_;
  std::size_t count_ = 0;
};

}  // namespace gemmad
