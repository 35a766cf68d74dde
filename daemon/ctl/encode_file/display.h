// What a run shows while it goes on, on standard error.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "daemon/ctl/encode_file/progress.h"

namespace gemmad {

/// On a terminal a bar that is redrawn in place, elsewhere a line now and then. Thread-safe.
class Display {
 public:
  Display();

  void show(const ProgressCounts& counts, std::chrono::duration<double> elapsed);
  /// A line that stays. Has no newline.
  void say(const std::string& line);
  /// Takes the bar away.
  void clear();

  /// How often show() is worth a call.
  std::chrono::milliseconds every() const;

 private:
  const bool terminal_;
  std::mutex mutex_;
};

}  // namespace gemmad
