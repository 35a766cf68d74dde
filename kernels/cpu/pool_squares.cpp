#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

// square: the first of k rows of k places each, a place `width` wide, the rows `row_stride` apart.
GEMMAD_MULTIVERSION void mean_of_square(const float* square, std::int64_t k, std::int64_t row_stride,
                                        float* out, std::int64_t width) {
  std::fill_n(out, width, 0.0f);
  for (std::int64_t a = 0; a < k; ++a) {
    for (std::int64_t b = 0; b < k; ++b) {
      const float* place = square + a * row_stride + b * width;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i)
        out[i] += place[i];
    }
  }
  const auto count = static_cast<float>(k * k);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] /= count;
}

}  // namespace

void pool_squares(ThreadPool& pool, ConstTensorView x, std::int64_t k, TensorView out) {
  const std::int64_t width = x.shape[1];
  std::int64_t squares = 0;  // side by side
  while (squares * squares < out.shape[0])
    ++squares;
  const std::int64_t row_stride = squares * k * width;
  for_row_blocks(pool, out.shape[0], k * k * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      mean_of_square(x.as<float>() + n / squares * k * row_stride + n % squares * k * width, k, row_stride,
                     out.as<float>() + n * width, width);
    }
  });
}

}  // namespace gemmad::cpu
