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

/// Scores are fp32, their weights are rounded to bf16 before they multiply the values. Fast for head_dim 64,
/// 128, 256 and 512, with qkv aligned to 16 bytes; any other up to 256 is slow; throws OpError beyond. The
/// spans no kernel writes: they are read before the kernel in front has ended.
void attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
               TensorView out, cudaStream_t stream);

/// The same for any even head_dim up to kMostHeadDim: slow.
void attention_any(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                   TensorView out, cudaStream_t stream);
constexpr std::int64_t kMostHeadDim = 256;

/// out = activation(sums + bias) + add. sums [N, C] F32; bias [C], add [N, C]: no data, nothing is added;
/// out [N, C], may be `add`.
void end_linear(ConstTensorView sums, ConstTensorView bias, Activation activation, ConstTensorView add,
                TensorView out, cudaStream_t stream);

void rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
              cudaStream_t stream);

void range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                TensorView scratch, TensorView out, cudaStream_t stream);

void fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                    TensorView out, cudaStream_t stream);

void norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                      ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                      cudaStream_t stream);

void gate_heads(TensorView x, ConstTensorView logits, cudaStream_t stream);

}  // namespace gemmad::cuda
