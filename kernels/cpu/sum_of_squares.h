// What both norms begin with. For sources compiled with simd pragmas on.
#pragma once

#include <cstdint>

#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {

/// Sum of squares of x[0, count), in fp32 by lanes.
GEMMAD_INLINE float sum_of_squares(const float* x, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i)
    sum += x[i] * x[i];
  return sum;
}

}  // namespace gemmad::cpu
