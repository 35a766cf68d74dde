// Norms of some rows of a matrix, by row and by sequence.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/sum_of_squares.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void rms_row(const float* x, float factor, float eps, float* out, std::int64_t width) {
  const float root = 1.0f / std::sqrt(sum_of_squares(x, width) / static_cast<float>(width) + eps);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = x[i] * root * factor;
}

struct Statistics {
  double sum;
  float min;
  float max;
};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Statistics kOfNothing = {0, kInfinity, -kInfinity};

// Each sequence is cut into as many pieces whatever the number of threads, so that sums come out the same. A
// piece's statistics are bytes among its sequence's scratch.
constexpr std::int64_t kPieces = 64;
constexpr std::int64_t kPieceFloats = sizeof(Statistics) / sizeof(float);
static_assert(kPieces * kPieceFloats <= Ops::kRangeScratch);

GEMMAD_MULTIVERSION void add_row(const float* row, std::int64_t width, Statistics& statistics) {
  double sum = 0;
  float min = statistics.min;
  float max = statistics.max;
#pragma omp simd reduction(+ : sum) reduction(min : min) reduction(max : max)
  for (std::int64_t i = 0; i < width; ++i) {
    const float value = row[i];
    sum += static_cast<double>(value);
    min = value < min ? value : min;
    max = value > max ? value : max;
  }
  statistics = {statistics.sum + sum, min, max};
}

GEMMAD_MULTIVERSION void range_row(const float* x, float mean, float range, float* out, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = 8.0f * (x[i] - mean) / range;
}

}  // namespace

void rms_rows(ThreadPool& pool, ConstTensorView x, ConstTensorView rows, float factor, float eps,
              TensorView out) {
  check_indices("rms_rows", "rows", rows, x.shape[0]);
  const auto* row = rows.as<std::int32_t>();
  const std::int64_t width = x.shape[1];
  for_row_blocks(pool, rows.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m)
      rms_row(x.as<float>() + row[m] * width, factor, eps, out.as<float>() + m * width, width);
  });
}

void range_rows(ThreadPool& pool, ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                TensorView scratch, TensorView out) {
  check_indices("range_rows", "rows", rows, x.shape[0]);
  check_bounds("range_rows", bounds, rows.shape[0], rows.shape[0]);
  const auto* row = rows.as<std::int32_t>();
  const auto* bound = bounds.as<std::int32_t>();
  const std::int64_t width = x.shape[1];
  const std::int64_t num_sequences = scratch.shape[0];
  const auto piece_at = [&](std::int64_t index) {
    return scratch.as<float>() + index / kPieces * Ops::kRangeScratch + index % kPieces * kPieceFloats;
  };
  const std::int64_t row_elements =
      rows.shape[0] * width / std::max<std::int64_t>(1, num_sequences * kPieces);
  for_row_blocks(pool, num_sequences * kPieces, row_elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t first = bound[index / kPieces];
      const std::int64_t count = bound[index / kPieces + 1] - first;
      Statistics statistics = kOfNothing;
      for (std::int64_t m = index % kPieces * count / kPieces; m < (index % kPieces + 1) * count / kPieces;
           ++m)
        add_row(x.as<float>() + row[first + m] * width, width, statistics);
      std::memcpy(piece_at(index), &statistics, sizeof(statistics));
    }
  });

  for (std::int64_t b = 0; b < num_sequences; ++b) {
    Statistics all = kOfNothing;
    for (std::int64_t piece = 0; piece < kPieces; ++piece) {
      Statistics statistics;
      std::memcpy(&statistics, piece_at(b * kPieces + piece), sizeof(statistics));
      all = {all.sum + statistics.sum, std::min(all.min, statistics.min), std::max(all.max, statistics.max)};
    }
    const std::int64_t first = bound[b];
    const std::int64_t count = bound[b + 1] - first;
    const float mean = static_cast<float>(all.sum) / static_cast<float>(count * width);
    const float range = all.max - all.min + eps;
    for_row_blocks(pool, count, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = first + begin; m < first + end; ++m)
        range_row(x.as<float>() + row[m] * width, mean, range, out.as<float>() + m * width, width);
    });
  }
}

}  // namespace gemmad::cpu
