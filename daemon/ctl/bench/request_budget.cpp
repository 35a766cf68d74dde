#include "daemon/ctl/bench/request_budget.h"

#include <limits>

namespace gemmad {

RequestBudget::RequestBudget(std::int64_t first, std::optional<std::int64_t> most,
                             std::optional<std::chrono::duration<double>> time)
    : next_(first),
      end_(most ? first + *most : std::numeric_limits<std::int64_t>::max()),
      ends_at_(time ? Clock::now() + std::chrono::duration_cast<Clock::duration>(*time)
                    : Clock::time_point::max()) {}

std::optional<std::int64_t> RequestBudget::take() {
  if (stopped_ || Clock::now() >= ends_at_) return std::nullopt;
  const std::int64_t number = next_++;
  if (number >= end_) return std::nullopt;
  return number;
}

}  // namespace gemmad
