// How many requests a benchmark sends, and until when.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace gemmad {

/// Hands out request numbers, counting up from `first`. Thread-safe.
class RequestBudget {
 public:
  RequestBudget(std::int64_t first, std::optional<std::int64_t> most,
                std::optional<std::chrono::duration<double>> time);

  /// The number of the next request; empty when all are given out, the time is over, or it was stopped.
  std::optional<std::int64_t> take();
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::atomic<std::int64_t> next_;
  const std::int64_t end_;
  const Clock::time_point ends_at_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace gemmad
