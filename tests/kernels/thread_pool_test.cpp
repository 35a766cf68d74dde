#include "kernels/cpu/thread_pool.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad::cpu {

TEST_CASE("ThreadPool calls each index once, for every count and number of threads") {
  const int num_threads = GENERATE(1, 2, 5);
  const std::int64_t count = GENERATE(0, 1, 2, 7, 1000);
  CAPTURE(num_threads, count);
  ThreadPool pool(num_threads);
  CHECK(pool.num_threads() == num_threads);
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
  std::atomic<bool> worker_in_range{true};
  pool.run(count, [&](std::int64_t index, int worker) {
    ++calls[static_cast<std::size_t>(index)];
    if (worker < 0 || worker >= num_threads) worker_in_range = false;
  });
  CHECK(worker_in_range);
  for (const auto& number : calls)
    CHECK(number == 1);
}

TEST_CASE("ThreadPool runs loop after loop") {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  for (int loop = 0; loop < 20000; ++loop) {
    pool.run(4, [&](std::int64_t index, int) { sum += index; });
    REQUIRE(sum == (loop + 1) * 6);  // all calls are over when run returns
  }
}

TEST_CASE("ThreadPool never gives one worker number to two calls at once") {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  for (int loop = 0; loop < 500; ++loop) {
    pool.run(16, [&](std::int64_t, int worker) {
      if (++inside[static_cast<std::size_t>(worker)] != 1) shared = true;
      --inside[static_cast<std::size_t>(worker)];
    });
  }
  CHECK_FALSE(shared);
}

TEST_CASE("ThreadPool hands an exception to the caller and stays usable") {
  ThreadPool pool(3);
  for (int round = 0; round < 100; ++round) {
    CHECK_THROWS_AS(pool.run(10,
                             [](std::int64_t index, int) {
                               if (index == 4) throw std::runtime_error("no");
                             }),
                    std::runtime_error);
    std::atomic<int> calls{0};
    pool.run(10, [&](std::int64_t, int) { ++calls; });
    CHECK(calls == 10);
  }
}

TEST_CASE("An idle ThreadPool uses no processor time to speak of") {
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  ThreadPool pool(4);
  pool.run(100, [](std::int64_t, int) {});
  // The measured stretches are idle by themselves: waiting is what is tested. The first ones may still hold
  // the start of other threads: OpenBLAS makes one a core, and each spins for a moment before it sleeps.
  double share = 1;
  for (int stretch = 0; stretch < 20 && share >= 0.02; ++stretch) {
    const double before = cpu_seconds();
    timespec pause{0, 500 * 1000 * 1000};
    nanosleep(&pause, nullptr);
    share = (cpu_seconds() - before) / 0.5;
  }
  CHECK(share < 0.02);
}

TEST_CASE("for_row_blocks covers all rows once") {
  const std::int64_t rows = GENERATE(0, 1, 3, 100, 1023);
  const std::int64_t width = GENERATE(0, 1, 640, 100000);
  CAPTURE(rows, width);
  ThreadPool pool(3);
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(rows));
  for_row_blocks(pool, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      ++seen[static_cast<std::size_t>(row)];
  });
  for (const auto& number : seen)
    CHECK(number == 1);
}

}  // namespace gemmad::cpu
