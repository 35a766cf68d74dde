#include "daemon/ctl/bench/percentile.h"

#include <stdexcept>
#include <string>

namespace gemmad {

double nearest_rank(std::span<const double> rising, int percent) {
  if (rising.empty()) throw std::invalid_argument("a percentile of no values");
  if (percent < 1 || percent > 100) {
    throw std::invalid_argument("percentile " + std::to_string(percent) + " is not 1 to 100");
  }
  // In whole numbers: rounding must not move a rank.
  const std::size_t rank = (rising.size() * static_cast<std::size_t>(percent) + 99) / 100;
  return rising[rank - 1];
}

}  // namespace gemmad
