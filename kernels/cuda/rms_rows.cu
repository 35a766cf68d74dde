#include "kernels/cuda/bf16.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

/// One block a row of `out`; Pack divides the width.
template <int Pack>
__global__ __launch_bounds__(kThreads) void normalize_rows(const Bf16* x, const std::int32_t* rows,
                                                           float factor, float eps, Bf16* out,
                                                           std::int64_t width) {
  __shared__ float partial[2][32];
  let_next_start();
  wait_for_previous();
  const Bf16* from = x + rows[blockIdx.x] * width;
  Bf16* to = out + blockIdx.x * width;
  float values[Pack];
  float squares = 0;
  for (std::int64_t i = Pack * threadIdx.x; i < width; i += Pack * kThreads) {
    load(from + i, values);
#pragma unroll
    for (const float value : values)
      squares += rounded(value * value);
  }
  const float sum = BlockSum(partial)(squares);
  const float mean = rounded(sum * (1.0f / static_cast<float>(width)));
  const float inverse = rounded(1.0f / sqrtf(rounded(mean + eps)));
  for (std::int64_t i = Pack * threadIdx.x; i < width; i += Pack * kThreads) {
    load(from + i, values);
#pragma unroll
    for (float& value : values)
      value = rounded(value * inverse) * factor;
    store(values, to + i);
  }
}

}  // namespace

void rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
              cudaStream_t stream) {
  const std::int64_t width = out.shape[1];
  if (out.shape[0] == 0 || width == 0) return;
  const bool wide = width % 8 == 0 && is_aligned({x.data, out.data});
  launch("launch rms_rows", wide ? normalize_rows<8> : normalize_rows<1>,
         {dim3(static_cast<unsigned>(out.shape[0])), dim3(kThreads)}, stream, x.as<Bf16>(),
         rows.as<std::int32_t>(), factor, eps, out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
