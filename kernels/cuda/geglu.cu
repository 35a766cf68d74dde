#include "kernels/cuda/bf16.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread for Pack columns of a row. Pack divides `block`, which divides `width`.
template <int Pack>
__global__ void geglu_rows(const Bf16* gate_up, std::int64_t block, Bf16* out, std::int64_t width) {
  wait_for_previous();
  let_next_start();
  const std::int64_t column = Pack * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x);
  if (column >= width) return;
  const std::int64_t row = blockIdx.y;
  const Bf16* gate = gate_up + row * 2 * width + column / block * 2 * block + column % block;
  float gates[Pack];
  float ups[Pack];
  load(gate, gates);
  load(gate + block, ups);
#pragma unroll
  for (int i = 0; i < Pack; ++i)
    gates[i] = rounded(gelu_tanh(gates[i])) * ups[i];
  store(gates, out + row * width + column);
}

}  // namespace

void geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, cudaStream_t stream) {
  const std::int64_t rows = out.shape[0];
  const std::int64_t width = out.shape[1];
  if (rows == 0 || width == 0) return;
  const int pack = block % 8 == 0 ? 8 : 1;
  const auto blocks = static_cast<unsigned>((width + kThreads * pack - 1) / (kThreads * pack));
  launch("launch geglu", pack == 8 ? geglu_rows<8> : geglu_rows<1>,
         {dim3(blocks, static_cast<unsigned>(rows)), dim3(kThreads)}, stream, gate_up.as<Bf16>(), block,
         out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
