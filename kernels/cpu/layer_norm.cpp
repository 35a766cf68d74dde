#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

// x and out may be the same. The variance is of what is left without the mean: large means take nothing from
// small variances.
GEMMAD_MULTIVERSION void norm_rows(const float* x, const float* weight, const float* bias, float eps,
                                   float* out, std::int64_t num_rows, std::int64_t width) {
  for (std::int64_t n = 0; n < num_rows; ++n, x += width, out += width) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i)
      sum += static_cast<double>(x[i]);
    const auto mean = static_cast<float>(sum / static_cast<double>(width));
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < width; ++i)
      squares += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i)
      out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
  }
}

}  // namespace

void layer_norm(ThreadPool& pool, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                TensorView out) {
  const std::int64_t width = x.shape[1];
  for_row_blocks(pool, x.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    norm_rows(x.as<float>() + begin * width, weight.as<float>(), bias.as<float>(), eps,
              out.as<float>() + begin * width, end - begin, width);
  });
}

}  // namespace gemmad::cpu
