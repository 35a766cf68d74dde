// The embeddings processor in LTX-2's files.
#pragma once

#include <filesystem>
#include <optional>

#include "config/processor_config.h"
#include "daemon/model/mapped_tensors.h"
#include "daemon/model/model_file_error.h"

namespace gemmad {

/// All tensors of a processor, complete and of the right shapes, where they lie in the mapped files; by their
/// names there (processor_tensors.h). Read-only after it was made; shares its mappings with its copies.
class ProcessorFiles final : public MappedTensors {
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

 private:
  ProcessorMetadata metadata_;
};

/// The metadata alone, of a file whose tensors are not looked at. Throws as open() does.
ProcessorMetadata read_processor_metadata(const std::filesystem::path& checkpoint);

}  // namespace gemmad
