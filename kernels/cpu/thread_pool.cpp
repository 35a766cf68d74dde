#include "kernels/cpu/thread_pool.h"

#include <utility>

namespace gemmad::cpu {
namespace {

// About 20 microseconds: longer than the gap between two operations of a forward pass, far shorter than one
// between requests.
constexpr int kSpins = 500;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Condition>
bool spin_until(const Condition& condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return true;
    pause();
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  try {
    for (int worker = 1; worker < num_threads; ++worker)
      workers_.emplace_back([this, worker] { work(worker); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    num_loops_.fetch_add(1);
  }
  loop_begun_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run_erased(std::int64_t count, Call call, const void* object) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index)
      call(object, index, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    call_ = call;
    object_ = object;
    count_ = count;
    next_index_.store(0, std::memory_order_relaxed);
    num_loops_.fetch_add(1);
  }
  loop_begun_.notify_all();
  take_indices(call, object, count, 0);

  // A worker that has not woken yet is not waited for: with the loop closed it finds nothing to join.
  std::unique_lock lock(mutex_);
  call_ = nullptr;
  lock.unlock();
  const auto all_left = [&] { return num_inside_.load() == 0; };
  spin_until(all_left);
  lock.lock();
  worker_left_.wait(lock, all_left);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto loop_begun = [&] { return num_loops_.load() != seen; };
    lock.unlock();
    spin_until(loop_begun);
    lock.lock();
    loop_begun_.wait(lock, loop_begun);
    seen = num_loops_.load();
    if (stopping_) return;
    if (call_ == nullptr) continue;

    const Call call = call_;
    const void* object = object_;
    const std::int64_t count = count_;
    num_inside_.fetch_add(1);
    lock.unlock();
    take_indices(call, object, count, worker);
    lock.lock();
    if (num_inside_.fetch_sub(1) == 1) worker_left_.notify_one();
  }
}

void ThreadPool::take_indices(Call call, const void* object, std::int64_t count, int worker) {
  try {
    for (std::int64_t index = next_index_.fetch_add(1); index < count; index = next_index_.fetch_add(1)) {
      call(object, index, worker);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    next_index_.store(count);
  }
}

}  // namespace gemmad::cpu
