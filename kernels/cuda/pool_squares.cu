#include <cmath>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 64;

/// One thread for Pack columns of a row of `out`: of a square of k rows of k.
template <int Pack>
__global__ __launch_bounds__(kThreads) void average_squares(const Bf16* x, int k, int grid, Bf16* out,
                                                            std::int64_t width) {
  let_next_start();
  wait_for_previous();
  const std::int64_t column = first_column<Pack>();
  if (column >= width) return;
  const int squares = grid / k;  // in a row of the grid
  const int i = static_cast<int>(blockIdx.x) / squares, j = static_cast<int>(blockIdx.x) % squares;
  float sums[Pack] = {};
  for (int a = 0; a < k; ++a) {
    const Bf16* from = x + (std::int64_t{i * k + a} * grid + j * k) * width + column;
#pragma unroll 4
    for (int b = 0; b < k; ++b) {
      float values[Pack];
      load(from + b * width, values);
#pragma unroll
      for (int c = 0; c < Pack; ++c)
        sums[c] += values[c];
    }
  }
  const auto count = static_cast<float>(k * k);
#pragma unroll
  for (float& sum : sums)
    sum /= count;
  store(sums, out + blockIdx.x * width + column);
}

}  // namespace

void pool_squares(ConstTensorView x, std::int64_t k, TensorView out, cudaStream_t stream) {
  const std::int64_t rows = out.shape[0];
  const std::int64_t width = out.shape[1];
  if (rows == 0 || width == 0) return;
  const auto grid = static_cast<int>(std::llround(std::sqrt(static_cast<double>(x.shape[0]))));
  const int pack = width % 8 == 0 && is_aligned({x.data, out.data}) ? 8 : 1;
  launch("launch pool_squares", pack == 8 ? average_squares<8> : average_squares<1>,
         {row_grid(rows, width, pack, kThreads), dim3(kThreads)}, stream, x.as<Bf16>(), static_cast<int>(k),
         grid, out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
