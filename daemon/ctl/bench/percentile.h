// Percentiles of measured values.
#pragma once

#include <span>

namespace gemmad {

/// By nearest rank: the smallest of `rising` that at least `percent` of 100 of them do not exceed. Throws
/// std::invalid_argument when there are no values, or for a percent that is not 1 to 100.
double nearest_rank(std::span<const double> rising, int percent);

}  // namespace gemmad
