#include <cmath>

#include "kernels/cpu/checks.h"
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

// A normed head: elements i * step, and with each the one `gap` behind it, by angle i.
GEMMAD_INLINE void norm_and_turn(float* head, std::int64_t num_pairs, std::int64_t step, std::int64_t gap,
                                 const float* weight, float factor, const float* cosines,
                                 const float* sines) {
#pragma omp simd
  for (std::int64_t i = 0; i < num_pairs; ++i) {
    const std::int64_t low = i * step;
    const std::int64_t high = low + gap;
    const float a = head[low] * factor * weight[low];
    const float b = head[high] * factor * weight[high];
    head[low] = a * cosines[i] - b * sines[i];
    head[high] = b * cosines[i] + a * sines[i];
  }
}

// The queries or the keys of one row: `heads` is the first of num_heads heads, each `stride` behind the one
// before. angles: C/2 cosines, then C/2 sines.
GEMMAD_MULTIVERSION void norm_rope_row(float* heads, std::int64_t num_heads, std::int64_t stride,
                                       std::int64_t head_dim, const float* weight, float eps,
                                       const float* angles, RopePairs pairs) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t width = num_heads * head_dim;
  float sum = 0;
  for (std::int64_t h = 0; h < num_heads; ++h)
    sum += sum_of_squares(heads + h * stride, head_dim);
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(width) + eps);
  for (std::int64_t h = 0; h < num_heads; ++h, heads += stride, weight += head_dim) {
    const float* cosines = angles + h * half;
    const float* sines = cosines + width / 2;
    if (pairs == RopePairs::kHalves) {
      norm_and_turn(heads, half, 1, half, weight, factor, cosines, sines);
    } else {
      norm_and_turn(heads, half, 2, 1, weight, factor, cosines, sines);
    }
  }
}

}  // namespace

void norm_rope(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
               ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions) {
  const auto* position = positions.as<std::int32_t>();
  check_indices("norm_rope", "positions", positions, rope.shape[0]);
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

void norm_rope_across(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                      ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs) {
  const std::int64_t width = heads.qkv_width();
  const std::int64_t stride = heads.group_width();
  for_row_blocks(pool, qkv.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* row = qkv.as<float>() + n * width;
      const float* angles = rope.as<float>() + n % rope.shape[0] * heads.q_width();
      norm_rope_row(row + heads.q_column(0), heads.num_heads, stride, heads.head_dim, q_weight.as<float>(),
                    eps, angles, pairs);
      norm_rope_row(row + heads.k_column(0), heads.num_heads, stride, heads.head_dim, k_weight.as<float>(),
                    eps, angles, pairs);
    }
  });
}

}  // namespace gemmad::cpu
