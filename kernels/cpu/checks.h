// What a device must trust and the CPU can look at: indices in tensors. Throw OpError that names operation,
// argument and place.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops.h"

namespace gemmad::cpu {

/// indices: [count] I32, each in [0, limit).
inline void check_indices(const char* op, const char* argument, ConstTensorView indices, std::int64_t limit) {
  const auto* index = indices.as<std::int32_t>();
  for (std::int64_t n = 0; n < indices.shape[0]; ++n) {
    if (index[n] < 0 || index[n] >= limit) {
      throw OpError(std::string(op) + ": " + argument + "[" + std::to_string(n) + "] is " +
                    std::to_string(index[n]) + ", must be in [0, " + std::to_string(limit) + ")");
    }
  }
}

/// bounds: [B + 1] I32 from 0 to `total`, each at most `longest` above the one before and none below it.
inline void check_bounds(const char* op, ConstTensorView bounds, std::int64_t total, std::int64_t longest) {
  const auto* bound = bounds.as<std::int32_t>();
  const std::int64_t last = bounds.shape[0] - 1;
  for (std::int64_t b = 0; b <= last; ++b) {
    const std::int64_t rise = b == 0 ? 0 : std::int64_t{bound[b]} - bound[b - 1];
    if (rise < 0 || rise > longest || (b == 0 && bound[b] != 0) || (b == last && bound[b] != total)) {
      throw OpError(std::string(op) + ": bounds[" + std::to_string(b) + "] is " + std::to_string(bound[b]) +
                    ", where they must rise from 0 to " + std::to_string(total) + " by at most " +
                    std::to_string(longest));
    }
  }
}

}  // namespace gemmad::cpu
