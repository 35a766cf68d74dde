#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void geglu_row(const float* gate, const float* up, float* out, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = gelu_tanh(gate[i]) * up[i];
}

}  // namespace

void geglu(ThreadPool& pool, ConstTensorView gate_up, TensorView out) {
  const std::int64_t width = out.shape[1];
  for_row_blocks(pool, out.shape[0], 2 * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* gate = gate_up.as<float>() + n * 2 * width;
      geglu_row(gate, gate + width, out.as<float>() + n * width, width);
    }
  });
}

}  // namespace gemmad::cpu
