#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernels.h"

namespace gemmad::cpu {

void fill_registers(ThreadPool& pool, ConstTensorView features, ConstTensorView bounds,
                    ConstTensorView registers, TensorView out) {
  const std::int64_t length = out.shape[0] / (bounds.shape[0] - 1);
  check_bounds("fill_registers", bounds, features.shape[0], length);
  const auto* bound = bounds.as<std::int32_t>();
  const std::int64_t width = out.shape[1];
  for_row_blocks(pool, out.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t b = n / length;
      const std::int64_t place = n % length;
      const float* from = place < bound[b + 1] - bound[b]
                              ? features.as<float>() + (bound[b] + place) * width
                              : registers.as<float>() + place % registers.shape[0] * width;
      std::copy_n(from, width, out.as<float>() + n * width);
    }
  });
}

}  // namespace gemmad::cpu
