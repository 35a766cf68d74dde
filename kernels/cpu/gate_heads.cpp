#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void gate(float* heads, const float* logits, std::int64_t num_heads,
                              std::int64_t head_dim) {
  for (std::int64_t h = 0; h < num_heads; ++h, heads += head_dim) {
    const float factor = 2.0f / (1.0f + exp_clamped(-logits[h]));
#pragma omp simd
    for (std::int64_t i = 0; i < head_dim; ++i)
      heads[i] *= factor;
  }
}

}  // namespace

// Rows are contiguous on both sides, so the heads of all rows are one sequence.
void gate_heads(ThreadPool& pool, TensorView x, ConstTensorView logits) {
  const std::int64_t head_dim = x.shape[1] / logits.shape[1];
  for_row_blocks(pool, logits.shape.num_elements(), head_dim, [&](std::int64_t begin, std::int64_t end) {
    gate(x.as<float>() + begin * head_dim, logits.as<float>() + begin, end - begin, head_dim);
  });
}

}  // namespace gemmad::cpu
