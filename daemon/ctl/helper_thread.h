// A thread beside another that does one task after the other for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace gemmad {

/// Calls come from one thread. The destructor waits for what began.
class HelperThread {
 public:
  /// Throws std::system_error when threads are lacking.
  HelperThread();

  /// Waits for what began before, no longer. `task` must not throw; it ends on the other thread.
  void begin(std::function<void()> task);
  /// Waits for what began last.
  void wait();

 private:
  void serve(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> task_;  // under way; empty: none
  std::jthread thread_;         // last: it uses all of the above
};

}  // namespace gemmad
