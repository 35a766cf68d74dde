// The input as groups of prompts: what a request sends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/ctl/encode_file/input_prompt.h"
#include "daemon/ctl/encode_file/line_reader.h"
#include "daemon/ctl/encode_file/output_folder.h"
#include "daemon/ctl/encode_file/problems.h"

namespace gemmad {

struct GroupedPrompt {
  InputPrompt input;
  bool is_there = false;  // its file is: it is sent, and not saved
};

using PromptGroup = std::vector<GroupedPrompt>;

/// Reads the input as it is asked for. Groups depend on the input alone, not on what is there, since what
/// shares a request may change the last bits of a result. Thread-safe.
class PromptSource {
 public:
  struct Settings {
    std::string field;
    InputLimits limits;
    std::size_t batch = 1;  // prompts of a group; fewer where a request cannot hold as many
    bool overwrites = false;
  };

  /// The references must outlive it. Throws as LineReader.
  PromptSource(const std::string& input, Settings settings, OutputFolder& folder, Problems& problems,
               Progress& progress, const RunState& run);

  /// The next group that has a prompt without a file; null at the end, and once the run stops. Throws
  /// SystemError.
  std::shared_ptr<const PromptGroup> take();

 private:
  PromptGroup read_group();
  std::optional<GroupedPrompt> read_prompt();
  GroupedPrompt place(const InputLine& line);

  const Settings settings_;
  OutputFolder& folder_;
  Problems& problems_;
  Progress& progress_;
  const RunState& run_;
  std::mutex mutex_;
  LineReader lines_;
  std::optional<GroupedPrompt> next_;               // was read and had no room in the last group
  std::map<std::string, std::int64_t> line_of_id_;  // of those in the folder that the last line belongs to
};

}  // namespace gemmad
