#include <algorithm>
#include <cstring>

#include "kernels/base/float_formats.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void widen_bf16(const std::byte* from, float* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = bf16_to_f32(load_u16(from, i));
}

void widen_f16(const std::byte* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = f16_to_f32(load_u16(from, i));
}

float load_as_f32(const std::byte* from, DType dtype, std::int64_t i) {
  if (dtype == DType::kBF16) return bf16_to_f32(load_u16(from, i));
  return dtype == DType::kF16 ? f16_to_f32(load_u16(from, i)) : load_f32(from, i);
}

GEMMAD_MULTIVERSION void narrow_f32(const std::byte* from, std::uint16_t* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = f32_to_bf16(load_f32(from, i));
}

void round_to_bf16(const std::byte* from, DType from_dtype, std::uint16_t* to, std::int64_t count) {
  if (from_dtype == DType::kF32) return narrow_f32(from, to, count);
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = f32_to_bf16(load_as_f32(from, from_dtype, i));
}

void convert_run(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, std::int64_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_bytes(to_dtype));
  } else if (to_dtype == DType::kBF16) {
    round_to_bf16(from, from_dtype, reinterpret_cast<std::uint16_t*>(to), count);
  } else if (from_dtype == DType::kBF16) {
    widen_bf16(from, reinterpret_cast<float*>(to), count);
  } else {
    widen_f16(from, reinterpret_cast<float*>(to), count);
  }
}

}  // namespace

void convert(ThreadPool& pool, TensorView dst, ConstMatrixView src) {
  constexpr std::int64_t kPiece = 4096;  // elements
  // Rows without gaps are cut anywhere, others where they end.
  const bool gapless = src.row_stride == src.columns;
  const std::int64_t count = src.rows * src.columns;
  const std::int64_t unit = gapless ? std::min(kPiece, count) : src.columns;
  if (count == 0) return;
  for_row_blocks(pool, (count + unit - 1) / unit, unit, [&](std::int64_t first, std::int64_t last) {
    const auto run = [&](std::int64_t begin, std::int64_t from, std::int64_t length) {
      convert_run(dst.as<std::byte>() + begin * static_cast<std::int64_t>(size_bytes(dst.dtype)), dst.dtype,
                  src.as<std::byte>() + from * static_cast<std::int64_t>(size_bytes(src.dtype)), src.dtype,
                  length);
    };
    if (gapless) return run(first * unit, first * unit, std::min(last * unit, count) - first * unit);
    for (std::int64_t row = first; row < last; ++row)
      run(row * unit, row * src.row_stride, unit);
  });
}

void convert_here(TensorView dst, ConstMatrixView src) {
  const auto to_bytes = src.columns * static_cast<std::int64_t>(size_bytes(dst.dtype));
  const auto from_bytes = src.row_stride * static_cast<std::int64_t>(size_bytes(src.dtype));
  for (std::int64_t row = 0; row < src.rows; ++row) {
    convert_run(dst.as<std::byte>() + row * to_bytes, dst.dtype, src.as<std::byte>() + row * from_bytes,
                src.dtype, src.columns);
  }
}

}  // namespace gemmad::cpu
