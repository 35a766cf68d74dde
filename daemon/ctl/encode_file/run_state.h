// What the threads of a run tell each other: to stop, and why.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace gemmad {

/// Thread-safe.
class RunState {
 public:
  /// Nothing new begins from now on; what is in flight is finished.
  void stop();
  /// The same, because of an error. The first one's message stays.
  void fail(const std::string& message);
  bool stopping() const;
  std::string failure() const;  // empty: none

  /// Waits for `pause`, or less when the run stops. Whether it goes on.
  bool pause(std::chrono::milliseconds pause);

 private:
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::string failure_;
};

}  // namespace gemmad
