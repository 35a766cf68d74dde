#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/sum_of_squares.h"

namespace gemmad::cpu {
namespace {

GEMMAD_INLINE float inverse_rms(const float* row, float eps, std::int64_t width) {
  return 1.0f / std::sqrt(sum_of_squares(row, width) / static_cast<float>(width) + eps);
}

// x and out may be the same; no weight: zeros.
GEMMAD_MULTIVERSION void norm_rows(const float* x, const float* weight, float eps, float* out,
                                   std::int64_t num_rows, std::int64_t width) {
  for (std::int64_t n = 0; n < num_rows; ++n, x += width, out += width) {
    const float factor = inverse_rms(x, eps, width);
    if (weight == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i)
        out[i] = x[i] * factor;
      continue;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i)
      out[i] = x[i] * factor * (1.0f + weight[i]);
  }
}

// x and out may be the same.
GEMMAD_MULTIVERSION void norm_add_rows(const float* y, const float* weight, float eps, const float* x,
                                       float* out, std::int64_t num_rows, std::int64_t width) {
  for (std::int64_t n = 0; n < num_rows; ++n, y += width, x += width, out += width) {
    const float factor = inverse_rms(y, eps, width);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i)
      out[i] = x[i] + y[i] * factor * (1.0f + weight[i]);
  }
}

}  // namespace

void rms_norm(ThreadPool& pool, ConstTensorView x, ConstTensorView weight, float eps, TensorView out) {
  const std::int64_t width = x.shape[1];
  for_row_blocks(pool, x.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    norm_rows(x.as<float>() + begin * width, weight.as<float>(), eps, out.as<float>() + begin * width,
              end - begin, width);
  });
}

void add_norm(ThreadPool& pool, const Ops::AddNorm& args) {
  const std::int64_t width = args.y.shape[1];
  for_row_blocks(pool, args.y.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    float* const out = args.x_out.as<float>() + begin * width;
    norm_add_rows(args.y.as<float>() + begin * width, args.weight.as<float>(), args.eps,
                  args.x.as<float>() + begin * width, out, end - begin, width);
    if (args.normed.data == nullptr) return;
    norm_rows(out, args.next_weight.as<float>(), args.eps, args.normed.as<float>() + begin * width,
              end - begin, width);
  });
}

}  // namespace gemmad::cpu
