#include <string>

#include "kernels/base/float_formats.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void scale_row_bf16(const std::uint16_t* row, float scale, float* out,
                                        std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = bf16_to_f32(row[i]) * scale;
}

void scale_row_f16(const std::uint16_t* row, float scale, float* out, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = f16_to_f32(row[i]) * scale;
}

void scale_row_f32(const float* row, float scale, float* out, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = row[i] * scale;
}

}  // namespace

void embed(ThreadPool& pool, ConstTensorView ids, ConstTensorView table, float scale, TensorView out) {
  const std::int64_t num_rows = ids.shape[0];
  const std::int64_t vocab_size = table.shape[0];
  const std::int64_t width = table.shape[1];
  const auto* id = ids.as<std::int32_t>();
  for (std::int64_t n = 0; n < num_rows; ++n) {
    if (id[n] < 0 || id[n] >= vocab_size) {
      throw OpError("embed: ids[" + std::to_string(n) + "] is " + std::to_string(id[n]) +
                    ", must be in [0, " + std::to_string(vocab_size) + ")");
    }
  }
  for_row_blocks(pool, num_rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* to = out.as<float>() + n * width;
      if (table.dtype == DType::kBF16) {
        scale_row_bf16(table.as<std::uint16_t>() + id[n] * width, scale, to, width);
      } else if (table.dtype == DType::kF16) {
        scale_row_f16(table.as<std::uint16_t>() + id[n] * width, scale, to, width);
      } else {
        scale_row_f32(table.as<float>() + id[n] * width, scale, to, width);
      }
    }
  });
}

}  // namespace gemmad::cpu
