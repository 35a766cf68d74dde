// The text tensors of a checkpoint, where they lie in the mapped files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "daemon/model/model_file_error.h"
#include "daemon/model/weight_source.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// One tensor of the text model in a mapped file. BF16, F16 or F32.
struct CheckpointTensor {
  ConstTensorView view;                    // in `file`'s mapping
  std::shared_ptr<const MappedFile> file;  // keeps it alive
};

/// All text tensors of a model, complete and of the right shapes. Read-only after it was made; owns the
/// mappings, shared.
class Checkpoint final : public WeightOrigin {
 public:
  /// Maps `directory`/model.safetensors, or the shards of model.safetensors.index.json where there is no such
  /// file, and checks all of it against `config`. Reads headers only. Throws ModelFileError, naming file and
  /// reason; of tensors that are missing, surplus or of a wrong shape or type it names the first ten and
  /// counts the rest.
  static Checkpoint open(const std::filesystem::path& directory, const TextConfig& config);

  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor& tensor) const override;
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return true; }
  std::vector<WeightEntry> entries() const override;
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const override;

  /// All of them, by canonical name.
  const std::map<std::string, CheckpointTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  const CheckpointTensor& find(std::string_view name) const;

  std::map<std::string, CheckpointTensor, std::less<>> tensors_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace gemmad
