// The running softmax of attention, of scores as a warpgroup's product leaves them in registers: two lines of
// the matrix of scores a thread, scores[4 i + e] of the first for e < 2, of the second above
// (kernels/cuda/hopper_wgmma.h). For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

namespace gemmad::cuda::warpgroup {

// A thread's two lines of scores: the keys they see, running maximum (of the scaled scores) and sum. The sums
// are of this thread's columns alone.
struct Lines {
  int first_key[2];
  unsigned num_keys[2];
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// first_key: the key of scores[0].
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&scores)[kCount], const Lines& lines, int first_key) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int line = i / 2 % 2;
    const int key = first_key + i / 4 * 8 + i % 2;
    if (static_cast<unsigned>(key - lines.first_key[line]) >= lines.num_keys[line]) scores[i] = -INFINITY;
  }
}

// Turns scores, which `scale` (above 0) still has to multiply, into weights relative to the new running
// maximum. keep: by what the earlier sums must be multiplied. A line that has seen no key yet keeps the
// maximum -inf and has weights of zero.
template <int kCount>
__device__ __forceinline__ void soften(float (&scores)[kCount], float scale, Lines& lines, float (&keep)[2]) {
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    float highest = -INFINITY;
#pragma unroll
    for (int i = 2 * line; i < kCount; i += 4)
      highest = fmaxf(highest, fmaxf(scores[i], scores[i + 1]));
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
    highest = fmaxf(lines.max[line], highest * scale);
    const float reference = highest == -INFINITY ? 0.0f : highest;
    keep[line] = exp2_fast(lines.max[line] - reference);
    lines.max[line] = highest;

    float sum = 0;
#pragma unroll
    for (int i = 2 * line; i < kCount; i += 4) {
      scores[i] = exp2_fast(fmaf(scores[i], scale, -reference));
      scores[i + 1] = exp2_fast(fmaf(scores[i + 1], scale, -reference));
      sum += scores[i] + scores[i + 1];
    }
    lines.sum[line] = lines.sum[line] * keep[line] + sum;
  }
}

/// Lines of two softmaxes over different keys become those over all. `other`: max[0], max[1], sum[0], sum[1].
/// keep, add: by what the sums of values of these lines, and of the others, must be multiplied.
__device__ __forceinline__ void join_lines(Lines& lines, const float4& other, float (&keep)[2],
                                           float (&add)[2]) {
  const float other_max[] = {other.x, other.y}, other_sum[] = {other.z, other.w};
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    const float highest = fmaxf(lines.max[line], other_max[line]);
    const float reference = highest == -INFINITY ? 0.0f : highest;  // neither has seen a key
    keep[line] = exp2_fast(lines.max[line] - reference);
    add[line] = exp2_fast(other_max[line] - reference);
    lines.max[line] = highest;
    lines.sum[line] = lines.sum[line] * keep[line] + other_sum[line] * add[line];
  }
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Where a thread holds scores is where wgmma wants weights.
template <int kCount>
__device__ __forceinline__ void pack_weights(const float (&scores)[kCount],
                                             std::uint32_t (&weights)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
}

// Most often the maximum of all lines of a warp stands: then there is nothing to do.
template <int kParts, int kCount>
__device__ __forceinline__ void scale_sums(float (&sums)[kParts][kCount], const float (&keep)[2]) {
  if (!__any_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f)) return;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sums[part][i] *= keep[i / 2 % 2];
  }
}

}  // namespace gemmad::cuda::warpgroup
