// Writes the files of a result beside the thread that asks for the next one.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/encode_file/encode_file_options.h"
#include "daemon/ctl/encode_file/output_folder.h"
#include "daemon/ctl/encode_file/problems.h"
#include "daemon/ctl/encode_file/prompt_source.h"
#include "daemon/ctl/helper_thread.h"

namespace gemmad {

/// `count` prompts of a group, from `first` on.
struct GroupPart {
  std::shared_ptr<const PromptGroup> group;
  std::size_t first = 0;
  std::size_t count = 0;

  const GroupedPrompt& at(std::size_t i) const { return (*group)[first + i]; }
};

/// What all writers of a run share. The references must outlive them.
struct WriterContext {
  FileFormat format;
  const OutputFolder& folder;
  Problems& problems;
  Progress& progress;
  RunState& run;
};

/// Calls come from one thread. Errors fail the run. The destructor waits for what began.
class GroupWriter {
 public:
  explicit GroupWriter(const WriterContext& context) : context_(context) {}

  /// Saves the results of `part`, whose prompts `result` and the daemon's `reply` list, and releases
  /// `result`. Waits for what began before, no longer: so no more than two results are held.
  void begin(GroupPart part, Reader::Result result, nlohmann::json reply);

 private:
  void write(const GroupPart& part, const Reader::Result& result, const nlohmann::json& reply);
  void write_prompt(const GroupedPrompt& prompt, const Reader::Prompt& result, const nlohmann::json& reply);

  const WriterContext& context_;
  HelperThread helper_;
};

}  // namespace gemmad
