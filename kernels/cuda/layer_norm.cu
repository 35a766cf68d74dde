#include "kernels/cuda/bf16.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kMostThreads = 256;

/// One block a row; Pack divides the width. A thread reads the same columns every time, so that x may be
/// `out`. The variance is that of differences from the mean: nothing cancels.
template <int Pack>
__global__ __launch_bounds__(kMostThreads) void normalize_rows(const Bf16* x, const Bf16* weight,
                                                               const Bf16* bias, float eps, Bf16* out,
                                                               std::int64_t width) {
  __shared__ float partial[2][32];
  let_next_start();
  wait_for_previous();
  const Bf16* from = x + blockIdx.x * width;
  Bf16* to = out + blockIdx.x * width;
  const std::int64_t first = std::int64_t{Pack} * threadIdx.x, stride = std::int64_t{Pack} * blockDim.x;
  BlockSum block_sum(partial);
  float values[Pack];
  float sum = 0;
  for (std::int64_t i = first; i < width; i += stride) {
    load(from + i, values);
#pragma unroll
    for (const float value : values)
      sum += value;
  }
  const float mean = block_sum(sum) / static_cast<float>(width);
  float squares = 0;
  for (std::int64_t i = first; i < width; i += stride) {
    load(from + i, values);
#pragma unroll
    for (const float value : values)
      squares += (value - mean) * (value - mean);
  }
  const float factor = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(width) + eps);
  for (std::int64_t i = first; i < width; i += stride) {
    float factors[Pack];
    float addends[Pack];
    load(from + i, values);
    load(weight + i, factors);
    load(bias + i, addends);
#pragma unroll
    for (int j = 0; j < Pack; ++j)
      values[j] = (values[j] - mean) * factor * factors[j] + addends[j];
    store(values, to + i);
  }
}

}  // namespace

void layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps, TensorView out,
                cudaStream_t stream) {
  const std::int64_t width = x.shape[1];
  if (x.shape[0] == 0 || width == 0) return;
  const bool wide = width % 8 == 0 && is_aligned({x.data, weight.data, bias.data, out.data});
  const std::int64_t wanted = wide ? width / 8 : width;
  const auto threads =
      static_cast<unsigned>(std::min<std::int64_t>((wanted + 31) / 32 * 32, kMostThreads));  // whole warps
  launch("launch layer_norm", wide ? normalize_rows<8> : normalize_rows<1>,
         {dim3(static_cast<unsigned>(x.shape[0])), dim3(threads)}, stream, x.as<Bf16>(), weight.as<Bf16>(),
         bias.as<Bf16>(), eps, out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
