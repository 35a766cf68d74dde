#include "daemon/model/generation/repetition_guard.h"

#include <algorithm>

namespace gemmad {

std::optional<std::int64_t> RepetitionGuard::push(std::int32_t id) {
  constexpr auto kMax = static_cast<std::int64_t>(kMaxPeriod);
  const auto index = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::optional<std::int64_t> cut;
  for (std::int64_t period = 1; period <= std::min(kMax, count_); ++period) {
    std::int64_t& equal = equal_[index(period)];
    equal = recent_[index((count_ - period) % kMax)] == id ? equal + 1 : 0;
    const std::int64_t enough = period == 1 ? kMinSameIds : std::max(kMinRounds * period, kMinIds);
    if (!cut && equal + period >= enough) cut = count_ + 1 - equal;
  }
  recent_[index(count_ % kMax)] = id;
  ++count_;
  return cut;
}

}  // namespace gemmad
