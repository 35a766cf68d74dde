// Tensors where they lie in mapped files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/model_file_error.h"
#include "daemon/model/safetensors_header.h"
#include "daemon/model/weight_source.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// One tensor in a mapped file. BF16, F16 or F32.
struct MappedTensor {
  ConstTensorView view;                    // in `file`'s mapping
  std::shared_ptr<const MappedFile> file;  // keeps it alive
};

/// Tensors by canonical name. Owns the mappings, shared.
class MappedTensors : public WeightOrigin {
 public:
  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor& tensor) const override;
  void check_readable() const override;
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return true; }
  std::vector<WeightEntry> entries() const override;
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const override;

  /// All of them, by canonical name.
  const std::map<std::string, MappedTensor, std::less<>>& tensors() const { return tensors_; }

 protected:
  /// Takes in the tensor of `file` that `entry` tells of: of a DType, with at most Shape::kMaxRank extents,
  /// all checked before.
  void add(const std::string& name, const SafetensorsEntry& entry, std::shared_ptr<const MappedFile> file);

 private:
  const MappedTensor& find(std::string_view name) const;

  std::map<std::string, MappedTensor, std::less<>> tensors_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace gemmad
