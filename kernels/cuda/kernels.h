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

void store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
              cudaStream_t stream);

/// Rounds as attention() does. Fast for head_dim 64, 128 and 256, with qkv, cache and out aligned to 16
/// bytes; many rows of a chunk only where the cache's P is a multiple of 64. Any other head_dim up to
/// kMostHeadDim is slow; throws OpError beyond. `rows` no kernel writes: it is read before the kernel in
/// front has ended. Of the cache, only what rows see matters: the rest may be NaN.
void attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                      const AttentionParams& params, TensorView out, cudaStream_t stream);

/// The same, reading keys and values for each row and kv head alone. head_dim is 64, 128 or 256, and all is
/// aligned.
void attention_decode(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                      const AttentionParams& params, TensorView out, cudaStream_t stream);

/// The same for any even head_dim up to kMostHeadDim: slow.
void attention_cached_any(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                          const AttentionParams& params, TensorView out, cudaStream_t stream);

void layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps, TensorView out,
                cudaStream_t stream);

void pool_squares(ConstTensorView x, std::int64_t k, TensorView out, cudaStream_t stream);

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
