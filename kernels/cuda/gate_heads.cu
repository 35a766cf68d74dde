#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread for Pack columns of a row; Pack divides the head size.
template <int Pack>
__global__ void gate_rows(Bf16* x, const Bf16* logits, std::int64_t num_heads, std::int64_t head_dim) {
  let_next_start();
  wait_for_previous();
  const std::int64_t column = first_column<Pack>();
  const std::int64_t width = num_heads * head_dim;
  if (column >= width) return;
  const std::int64_t row = blockIdx.x;
  const float logit = __bfloat162float(logits[row * num_heads + column / head_dim]);
  const float gate = 2.0f * rounded(1.0f / (1.0f + expf(-logit)));
  Bf16* const place = x + row * width + column;
  float values[Pack];
  load(place, values);
#pragma unroll
  for (float& value : values)
    value *= gate;
  store(values, place);
}

}  // namespace

void gate_heads(TensorView x, ConstTensorView logits, cudaStream_t stream) {
  const std::int64_t rows = x.shape[0];
  const std::int64_t width = x.shape[1];
  if (rows == 0 || width == 0) return;
  const std::int64_t num_heads = logits.shape[1];
  const std::int64_t head_dim = width / num_heads;
  const int pack = head_dim % 8 == 0 && is_aligned({x.data}) ? 8 : 1;
  launch("launch gate_heads", pack == 8 ? gate_rows<8> : gate_rows<1>,
         {row_grid(rows, width, pack, kThreads), dim3(kThreads)}, stream, x.as<Bf16>(), logits.as<Bf16>(),
         num_heads, head_dim);
}

}  // namespace gemmad::cuda
