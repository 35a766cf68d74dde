#include "kernels/base/float_formats.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void scale_row_bf16(const std::byte* row, float scale, float* out, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = bf16_to_f32(load_u16(row, i)) * scale;
}

void scale_row_f16(const std::byte* row, float scale, float* out, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = f16_to_f32(load_u16(row, i)) * scale;
}

void scale_row_f32(const std::byte* row, float scale, float* out, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = load_f32(row, i) * scale;
}

}  // namespace

void embed(ThreadPool& pool, ConstTensorView ids, ConstTensorView table, float scale, TensorView out) {
  const std::int64_t num_rows = ids.shape[0];
  const std::int64_t width = table.shape[1];
  const auto* id = ids.as<std::int32_t>();
  check_indices("embed", "ids", ids, table.shape[0]);
  const auto row_bytes = width * static_cast<std::int64_t>(size_bytes(table.dtype));
  for_row_blocks(pool, num_rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::byte* from = table.as<std::byte>() + id[n] * row_bytes;
      float* to = out.as<float>() + n * width;
      if (table.dtype == DType::kBF16) {
        scale_row_bf16(from, scale, to, width);
      } else if (table.dtype == DType::kF16) {
        scale_row_f16(from, scale, to, width);
      } else {
        scale_row_f32(from, scale, to, width);
      }
    }
  });
}

}  // namespace gemmad::cpu
