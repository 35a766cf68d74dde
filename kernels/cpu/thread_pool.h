// A fixed set of threads that work on one loop at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gemmad::cpu {

/// Runs loops on `num_threads` threads, the caller's included. Between loops the others spin for some
/// microseconds, so that the loops of one forward pass follow each other fast, then sleep. One caller at a
/// time.
class ThreadPool {
 public:
  /// Throws std::system_error when a thread cannot be started.
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(index, worker) once for each index in [0, count), in any order on any thread; `worker`, in
  /// [0, num_threads), differs between calls that run at the same time. Blocks until all are done. Allocates
  /// nothing. When a call throws, the indices not yet begun are left out and the first exception is thrown
  /// here.
  template <typename Task>
  void run(std::int64_t count, const Task& task) {
    run_erased(
        count,
        [](const void* object, std::int64_t index, int worker) {
          (*static_cast<const Task*>(object))(index, worker);
        },
        &task);
  }

 private:
  using Call = void (*)(const void* object, std::int64_t index, int worker);

  void run_erased(std::int64_t count, Call call, const void* object);
  void work(int worker);
  void take_indices(Call call, const void* object, std::int64_t count, int worker);
  void stop() noexcept;

  std::mutex mutex_;
  std::condition_variable loop_begun_;
  std::condition_variable worker_left_;

  // The loop at hand; written under mutex_. call_ is null when no worker may join any more.
  Call call_ = nullptr;
  const void* object_ = nullptr;
  std::int64_t count_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;

  std::atomic<std::int64_t> next_index_{0};
  std::atomic<std::uint64_t> num_loops_{0};  // begun so far; workers wait for it to change
  std::atomic<int> num_inside_{0};           // workers in the loop at hand
  std::vector<std::thread> workers_;
};

/// Cuts [0, num_rows) into runs of rows, a few for each thread but each worth at least `min_elements`, and
/// calls task(begin, end) for each. For work in which rows do not depend on each other.
template <typename Task>
void for_row_blocks(ThreadPool& pool, std::int64_t num_rows, std::int64_t elements_per_row,
                    const Task& task) {
  constexpr std::int64_t kMinElements = 16 * 1024;  // below, waking a thread costs more than it brings
  constexpr std::int64_t kBlocksPerThread = 4;
  const std::int64_t fair =
      (num_rows + pool.num_threads() * kBlocksPerThread - 1) / (pool.num_threads() * kBlocksPerThread);
  const std::int64_t least =
      elements_per_row > 0 ? (kMinElements + elements_per_row - 1) / elements_per_row : num_rows;
  const std::int64_t block = fair > least ? fair : least;
  if (num_rows <= 0) return;
  pool.run((num_rows + block - 1) / block, [&](std::int64_t index, int) {
    const std::int64_t begin = index * block;
    task(begin, begin + block < num_rows ? begin + block : num_rows);
  });
}

}  // namespace gemmad::cpu
