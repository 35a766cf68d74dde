#include "kernels/cuda/bf16.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

template <int Pack>
__device__ __forceinline__ void load_sums(const float* from, float (&to)[Pack]) {
  if constexpr (Pack == 1) {
    to[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < Pack; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  }
}

/// One thread for Pack columns of a row; Pack divides `width`. `add` may be `out`.
template <int Pack>
__global__ void end_rows(const float* sums, const Bf16* bias, bool gelu, const Bf16* add, Bf16* out,
                         std::int64_t width) {
  let_next_start();
  wait_for_previous();
  const std::int64_t column = first_column<Pack>();
  if (column >= width) return;
  const std::int64_t place = blockIdx.x * width + column;
  float values[Pack];
  float others[Pack];
  load_sums(sums + place, values);
  if (bias != nullptr) {
    load(bias + column, others);
#pragma unroll
    for (int i = 0; i < Pack; ++i)
      values[i] += others[i];
  }
  if (gelu) {
#pragma unroll
    for (float& value : values)
      value = gelu_tanh(value);
  }
  if (add != nullptr) {
    load(add + place, others);
#pragma unroll
    for (int i = 0; i < Pack; ++i)
      values[i] += others[i];
  }
  store(values, out + place);
}

}  // namespace

void end_linear(ConstTensorView sums, ConstTensorView bias, Activation activation, ConstTensorView add,
                TensorView out, cudaStream_t stream) {
  const std::int64_t rows = out.shape[0];
  const std::int64_t width = out.shape[1];
  if (rows == 0 || width == 0) return;
  const int pack = width % 8 == 0 && is_aligned({sums.data, bias.data, add.data, out.data}) ? 8 : 1;
  launch("launch end_linear", pack == 8 ? end_rows<8> : end_rows<1>,
         {row_grid(rows, width, pack, kThreads), dim3(kThreads)}, stream, sums.as<float>(), bias.as<Bf16>(),
         activation == Activation::kGelu, add.as<Bf16>(), out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
