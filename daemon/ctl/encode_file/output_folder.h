// The folder of the files: what is there, and what a run adds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/ctl/encode_file/input_prompt.h"
#include "daemon/ctl/safetensors_writer.h"

namespace gemmad {

/// Held by one process at a time. save() is for any thread, the rest for one at a time.
class OutputFolder {
 public:
  static constexpr std::int64_t kLinesPerFolder = 1000;

  /// Makes the folder if need be, takes hold of it, and writes the manifest unless it is there. Throws
  /// CtlUsageError when another process holds it or its manifest has other settings and `overwrites` is
  /// false, SystemError.
  OutputFolder(std::filesystem::path folder, const nlohmann::json& settings, bool overwrites);

  /// What there is where a prompt's file belongs.
  enum class State {
    kMissing,  // nothing, or what may be replaced: a file that is cut off or of settings from before
    kDone,     // its file
    kForeign,  // a file of another prompt, or of who knows what: not to be replaced unless asked for
  };
  State state_of(const InputPrompt& prompt) const;

  /// Makes sure that the file of `line` can be saved: makes its folder, and removes what killed processes
  /// left there. Lines come in rising order. True when the folder is another than that of the line before.
  bool enter(std::int64_t line);

  /// Throws SystemError.
  void save(const InputPrompt& prompt, const std::vector<TensorToWrite>& tensors) const;

  std::filesystem::path file_of(const InputPrompt& prompt) const;
  std::filesystem::path skipped_list() const { return folder_ / "skipped.jsonl"; }

 private:
  void settle_manifest(const nlohmann::json& settings, bool overwrites) const;
  std::filesystem::path folder_of(std::int64_t line) const;

  std::filesystem::path folder_;
  FileDescriptor lock_;
  std::string settings_hash_;
  std::filesystem::path entered_;  // where the last line's file is
};

}  // namespace gemmad
