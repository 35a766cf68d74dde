// The tied head: the largest matrix of all, kept in its file's type. So it is widened on the way, some rows
// at a time; for few rows of x in registers, where widened rows would cost more than the product.
#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/base/float_formats.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

constexpr std::int64_t kPanelRows = 64;  // of the table; the same whatever the number of threads
constexpr std::int64_t kFewRows = 4;     // of x
constexpr std::int64_t kTogether = 4;    // rows of the table, so that sums do not wait for each other

// out[j] = x . row j, of rows that are BF16 and one after another.
GEMMAD_MULTIVERSION void dot_four(const float* x, const std::byte* rows, std::int64_t width, float* out) {
  const std::byte* second = rows + width * 2;
  const std::byte* third = second + width * 2;
  const std::byte* fourth = third + width * 2;
  float a = 0;
  float b = 0;
  float c = 0;
  float d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (std::int64_t i = 0; i < width; ++i) {
    a += x[i] * bf16_to_f32(load_u16(rows, i));
    b += x[i] * bf16_to_f32(load_u16(second, i));
    c += x[i] * bf16_to_f32(load_u16(third, i));
    d += x[i] * bf16_to_f32(load_u16(fourth, i));
  }
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
}

GEMMAD_MULTIVERSION float dot_one(const float* x, const std::byte* row, std::int64_t width) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i)
    sum += x[i] * bf16_to_f32(load_u16(row, i));
  return sum;
}

// Rows [begin, end) of a BF16 table.
void multiply_few(ConstTensorView x, ConstTensorView table, std::int64_t begin, std::int64_t end,
                  TensorView out) {
  const std::int64_t width = x.shape[1];
  std::int64_t v = begin;
  const auto row = [&](std::int64_t index) { return table.as<std::byte>() + index * width * 2; };
  for (; v + kTogether <= end; v += kTogether) {
    for (std::int64_t n = 0; n < x.shape[0]; ++n)
      dot_four(x.as<float>() + n * width, row(v), width, out.as<float>() + n * out.shape[1] + v);
  }
  for (; v < end; ++v) {
    for (std::int64_t n = 0; n < x.shape[0]; ++n)
      out.as<float>()[n * out.shape[1] + v] = dot_one(x.as<float>() + n * width, row(v), width);
  }
}

}  // namespace

Unembed::Unembed(ThreadPool& pool) : pool_(pool), panels_(static_cast<std::size_t>(pool.num_threads())) {}

void Unembed::run(ConstTensorView x, ConstTensorView table, TensorView out) {
  const std::int64_t num_rows = x.shape[0];
  const std::int64_t width = x.shape[1];
  const std::int64_t vocabulary = table.shape[0];
  if (num_rows == 0) return;
  if (width == 0) {  // BLAS takes no matrix without columns; the sum over nothing is zero.
    std::fill_n(out.as<float>(), num_rows * vocabulary, 0.0f);
    return;
  }
  const bool few = num_rows <= kFewRows && table.dtype == DType::kBF16;
  const auto row_bytes = width * static_cast<std::int64_t>(size_bytes(table.dtype));
  if (!few) {
    for (std::vector<float>& panel : panels_)
      panel.resize(std::max(panel.size(), static_cast<std::size_t>(kPanelRows * width)));
  }
  pool_.run((vocabulary + kPanelRows - 1) / kPanelRows, [&](std::int64_t index, int worker) {
    const std::int64_t begin = index * kPanelRows;
    const std::int64_t end = std::min(begin + kPanelRows, vocabulary);
    if (few) return multiply_few(x, table, begin, end, out);
    float* const panel = panels_[static_cast<std::size_t>(worker)].data();
    convert_here({panel, DType::kF32, {end - begin, width}},
                 {table.as<std::byte>() + begin * row_bytes, table.dtype, end - begin, width, width});
    gemm_nt(num_rows, end - begin, width, {x.as<float>(), width}, {panel, width}, false,
            {out.as<float>() + begin, vocabulary});
  });
}

}  // namespace gemmad::cpu
