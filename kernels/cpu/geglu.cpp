#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

GEMMAD_MULTIVERSION void geglu_blocks(const float* gate, float* out, std::int64_t num_blocks,
                                      std::int64_t block) {
  for (std::int64_t b = 0; b < num_blocks; ++b, gate += 2 * block, out += block) {
    const float* up = gate + block;
#pragma omp simd
    for (std::int64_t i = 0; i < block; ++i)
      out[i] = gelu_tanh(gate[i]) * up[i];
  }
}

}  // namespace

// Rows are contiguous on both sides, so the blocks of all rows are one sequence.
void geglu(ThreadPool& pool, ConstTensorView gate_up, std::int64_t block, TensorView out) {
  const std::int64_t num_blocks = out.shape.num_elements() / block;
  for_row_blocks(pool, num_blocks, 2 * block, [&](std::int64_t begin, std::int64_t end) {
    geglu_blocks(gate_up.as<float>() + begin * 2 * block, out.as<float>() + begin * block, end - begin,
                 block);
  });
}

}  // namespace gemmad::cpu
