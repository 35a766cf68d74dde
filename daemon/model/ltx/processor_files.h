// The embeddings processor in LTX-2's files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/processor_config.h"
#include "daemon/model/model_file_error.h"
#include "daemon/model/weight_source.h"
#include "kernels/base/mapped_file.h"

namespace gemmad {

/// All tensors of a processor, complete and of the right shapes, where they lie in the mapped files; by their
/// names there (processor_tensors.h). Read-only after it was made; shares its mappings with its copies.
class ProcessorFiles final : public WeightOrigin {
 public:
  /// Maps `checkpoint`, which has the config in its metadata, and `projections` where there is one: a packed
  /// text encoder that holds the projections. A tensor is taken from the first of them that has it; whatever
  /// else they hold is passed over. Reads headers only. Throws ConfigError for what the metadata says (see
  /// parse_processor_metadata, check_fits), ModelFileError for all else, naming the file; of tensors that are
  /// missing or of a wrong shape or type it names the first ten and counts the rest.
  static ProcessorFiles open(const std::filesystem::path& checkpoint,
                             const std::optional<std::filesystem::path>& projections,
                             const StateSizes& states);

  const ProcessorConfig& config() const { return metadata_.config; }
  const GemmaPairing& pairing() const { return metadata_.pairing; }

  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor& tensor) const override;
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return true; }
  std::vector<WeightEntry> entries() const override;
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  struct Place {
    ConstTensorView view;                    // in `file`'s mapping
    std::shared_ptr<const MappedFile> file;  // keeps it alive
  };

  const Place& find(std::string_view name) const;

  ProcessorMetadata metadata_;
  std::map<std::string, Place, std::less<>> tensors_;
  std::uint64_t size_bytes_ = 0;
};

/// The metadata alone, of a file whose tensors are not looked at. Throws as open() does.
ProcessorMetadata read_processor_metadata(const std::filesystem::path& checkpoint);

}  // namespace gemmad
