// Lines of the input that give no file: reported, and skipped or the end of the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/ctl/encode_file/display.h"
#include "daemon/ctl/encode_file/progress.h"
#include "daemon/ctl/encode_file/run_state.h"

namespace gemmad {

struct Problem {
  std::int64_t line = 0;
  std::string id;  // empty: not known
  std::string reason;
};

/// Thread-safe.
class Problems {
 public:
  /// `list`: where skipped lines are listed; a list of before is removed. Without `skips` the first problem
  /// fails the run. The references must outlive it. Throws SystemError.
  Problems(std::string input, std::filesystem::path list, bool skips, RunState& run, Progress& progress,
           Display& display);

  /// Throws SystemError when it cannot be listed.
  void report(const Problem& problem);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void say(const std::string& text);
  void append_to_list(const Problem& problem);

  const std::string input_;
  const std::filesystem::path list_;
  const bool skips_;
  RunState& run_;
  Progress& progress_;
  Display& display_;
  std::mutex mutex_;
  std::int64_t num_said_ = 0;
  std::unique_ptr<std::FILE, CloseFile> file_;  // opened with the first
};

}  // namespace gemmad
