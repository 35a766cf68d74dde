#include "kernels/cpu/running_attention.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// scores[0, num_keys): of one query against a piece of the keys, of which it sees [first, last). Turns them
// into weights relative to the new running maximum, zero where unseen. Returns by what the row's earlier sums
// must be multiplied.
GEMMAD_MULTIVERSION float soften_row(float* scores, std::int64_t num_keys, std::int64_t first,
                                     std::int64_t last, float& row_max, float& row_sum) {
  float piece_max = kNone;
#pragma omp simd reduction(max : piece_max)
  for (std::int64_t i = first; i < last; ++i)
    piece_max = scores[i] > piece_max ? scores[i] : piece_max;
  const float new_max = piece_max > row_max ? piece_max : row_max;

  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = first; i < last; ++i) {
    const float weight = exp_clamped(scores[i] - new_max);
    scores[i] = weight;
    sum += weight;
  }
  for (std::int64_t i = 0; i < first; ++i)
    scores[i] = 0;
  for (std::int64_t i = last; i < num_keys; ++i)
    scores[i] = 0;

  const float keep = row_max == new_max ? 1.0f : row_max == kNone ? 0.0f : exp_clamped(row_max - new_max);
  row_sum = row_sum * keep + sum;
  row_max = new_max;
  return keep;
}

GEMMAD_MULTIVERSION void scale_row(const float* from, float factor, float* to, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    to[i] = from[i] * factor;
}

void grow(std::vector<float>& values, std::int64_t count) {
  if (values.size() < static_cast<std::size_t>(count)) values.resize(static_cast<std::size_t>(count));
}

}  // namespace

void RunningAttention::reserve(std::int64_t num_rows, std::int64_t width) {
  grow(queries_, num_rows * width);
  grow(scores_, num_rows * kKeys);
  grow(sums_, num_rows * width);
  grow(row_max_, num_rows);
  grow(row_sum_, num_rows);
}

void RunningAttention::begin(std::int64_t num_rows, std::int64_t width) {
  reserve(num_rows, width);
  num_rows_ = num_rows;
  width_ = width;
  has_sums_ = false;
  std::fill_n(row_max_.begin(), num_rows, kNone);
  std::fill_n(row_sum_.begin(), num_rows, 0.0f);
}

void RunningAttention::set_query(std::int64_t row, const float* query, float scale) {
  scale_row(query, scale, queries_.data() + row * width_, width_);
}

void RunningAttention::multiply_keys(ConstMatrix keys, std::int64_t num_keys) {
  gemm_nt(num_rows_, num_keys, width_, {queries_.data(), width_}, keys, false, {scores_.data(), num_keys});
}

void RunningAttention::soften(std::int64_t row, std::int64_t num_keys, Seen seen) {
  const auto r = static_cast<std::size_t>(row);
  const float keep =
      soften_row(scores_.data() + row * num_keys, num_keys, seen.first, seen.last, row_max_[r], row_sum_[r]);
  if (has_sums_ && keep != 1.0f)
    scale_row(sums_.data() + row * width_, keep, sums_.data() + row * width_, width_);
}

void RunningAttention::add_values(ConstMatrix values, std::int64_t num_keys) {
  gemm_nn(num_rows_, width_, num_keys, {scores_.data(), num_keys}, values, has_sums_, {sums_.data(), width_});
  has_sums_ = true;
}

void RunningAttention::write(std::int64_t row, float* to) const {
  scale_row(sums_.data() + row * width_, 1.0f / row_sum_[static_cast<std::size_t>(row)], to, width_);
}

}  // namespace gemmad::cpu
