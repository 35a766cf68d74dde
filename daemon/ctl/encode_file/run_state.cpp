#include "daemon/ctl/encode_file/run_state.h"

namespace gemmad {

void RunState::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  stopped_.notify_all();
}

void RunState::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = message;
  stopping_ = true;
  stopped_.notify_all();
}

bool RunState::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

std::string RunState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool RunState::pause(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, pause, [this] { return stopping_; });
}

}  // namespace gemmad
