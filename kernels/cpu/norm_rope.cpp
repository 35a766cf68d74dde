#include <cmath>
#include <string>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/sum_of_squares.h"

namespace gemmad::cpu {
namespace {

// Consecutive heads of one row, in place. angles: S/2 cosines, then S/2 sines.
GEMMAD_MULTIVERSION void norm_rope_heads(float* head, std::int64_t num_heads, std::int64_t head_dim,
                                         const float* weight, float eps, const float* angles) {
  const std::int64_t half = head_dim / 2;
  const float* cosines = angles;
  const float* sines = angles + half;
  for (std::int64_t j = 0; j < num_heads; ++j, head += head_dim) {
    const float factor =
        1.0f / std::sqrt(sum_of_squares(head, head_dim) / static_cast<float>(head_dim) + eps);
    float* low = head;
    float* high = head + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = low[i] * factor * (1.0f + weight[i]);
      const float b = high[i] * factor * (1.0f + weight[half + i]);
      low[i] = a * cosines[i] - b * sines[i];
      high[i] = b * cosines[i] + a * sines[i];
    }
  }
}

}  // namespace

void norm_rope(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
               ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions) {
  const auto* position = positions.as<std::int32_t>();
  for (std::int64_t n = 0; n < qkv.shape[0]; ++n) {
    if (position[n] < 0 || position[n] >= rope.shape[0]) {
      throw OpError("norm_rope: positions[" + std::to_string(n) + "] is " + std::to_string(position[n]) +
                    ", must be in [0, " + std::to_string(rope.shape[0]) + ")");
    }
  }
  const std::int64_t width = heads.qkv_width();
  const std::int64_t queries = heads.queries_per_kv_head();
  for_row_blocks(pool, qkv.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* row = qkv.as<float>() + n * width;
      const float* angles = rope.as<float>() + position[n] * heads.head_dim;
      for (std::int64_t kv_head = 0; kv_head < heads.num_kv_heads; ++kv_head) {
        norm_rope_heads(row + heads.q_column(kv_head * queries), queries, heads.head_dim,
                        q_weight.as<float>(), eps, angles);
        norm_rope_heads(row + heads.k_column(kv_head), 1, heads.head_dim, k_weight.as<float>(), eps, angles);
      }
    }
  });
}

}  // namespace gemmad::cpu
