// The options of gemmactl encode-file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gemmad {

/// What the files hold: tensors as the daemon names them, or those that LTX-2's trainer reads.
enum class FileFormat { kGemmad, kTrainer };

struct EncodeFileOptions {
  std::string input;  // JSON lines
  std::string folder;
  std::string field = "prompt";  // of a line that is an object
  bool skips_errors = false;
  FileFormat format = FileFormat::kGemmad;
  std::int64_t in_flight = 4;  // requests at a time
  std::optional<std::int64_t>
      batch;  // prompts of a request; none: kDefaultBatch, or less where the daemon takes less
  bool overwrites = false;

  static constexpr std::int64_t kDefaultBatch = 16;
};

/// Options with a value.
bool is_encode_file_option(const std::string& name);

/// `name` must be one of them. Throws CtlUsageError for a value that it cannot have.
void set_encode_file_option(EncodeFileOptions& options, const std::string& name, const std::string& value);

std::string encode_file_help_text();

/// "gemmad", "trainer"
std::string name_of(FileFormat format);

}  // namespace gemmad
