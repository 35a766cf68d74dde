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

}  // namespace

void convert(ThreadPool& pool, TensorView dst, ConstTensorView src) {
  constexpr std::int64_t kPiece = 4096;  // elements
  const std::int64_t count = src.shape.num_elements();
  for_row_blocks(pool, (count + kPiece - 1) / kPiece, kPiece, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kPiece;
    const std::int64_t length = std::min(last * kPiece, count) - begin;
    if (src.dtype == dst.dtype) {
      const auto width = static_cast<std::int64_t>(size_bytes(src.dtype));
      std::memcpy(dst.as<std::byte>() + begin * width, src.as<std::byte>() + begin * width,
                  static_cast<std::size_t>(length * width));
    } else if (src.dtype == DType::kBF16) {
      widen_bf16(src.as<std::byte>() + begin * 2, dst.as<float>() + begin, length);
    } else {
      widen_f16(src.as<std::byte>() + begin * 2, dst.as<float>() + begin, length);
    }
  });
}

}  // namespace gemmad::cpu
