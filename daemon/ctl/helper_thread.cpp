#include "daemon/ctl/helper_thread.h"

#include <utility>

namespace gemmad {

HelperThread::HelperThread() : thread_([this](const std::stop_token& stop) { serve(stop); }) {}

void HelperThread::begin(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !task_; });
  task_ = std::move(task);
  changed_.notify_all();
}

void HelperThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !task_; });
}

void HelperThread::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return static_cast<bool>(task_); })) {
    lock.unlock();
    task_();
    lock.lock();
    // What it holds goes before anyone hears that it is done.
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gemmad
