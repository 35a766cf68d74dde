// The computations behind CudaOps, one file each. Arguments have been checked (kernels/ops.h says what they
// are); activations and weights are BF16. Every function puts its work on `stream` and returns; throws
// CudaError. Rounding points are those of the model in bf16: each tensor that kernels/ops.h names is rounded
// once, sums are fp32. Kernels may begin before the one before them ends (kernels/cuda/launch.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/ops.h"

namespace gemmad::cuda {

/// The table is BF16; `scale` is rounded to it.
void embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, cudaStream_t stream);

void norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight, ConstTensorView k_weight,
               float eps, ConstTensorView rope, ConstTensorView positions, cudaStream_t stream);

/// gelu_tanh(gate) is a tensor of its own: it is rounded before it is multiplied.
void geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, cudaStream_t stream);

/// Scores are fp32, their weights are rounded to bf16 before they multiply the values. head_dim 64, 128, 256
/// or 512: throws OpError for any other. `begins` [N] I32: row n's sequence begins at row begins[n].
void attention(ConstTensorView qkv, ConstTensorView begins, const AttentionParams& params, TensorView out,
               cudaStream_t stream);

}  // namespace gemmad::cuda
