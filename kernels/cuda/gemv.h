// Products of so few rows of activations that reading the weights is all that takes time: each weight is read
// once, 16 bytes a thread, and goes from registers into the tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/tensor.h"

namespace gemmad::cuda {

constexpr std::int64_t kMostGemvRows = 8;

/// Whether y[N, O] = x[N, I] w[O, I]^T can be computed this way: all BF16; N at most kMostGemvRows; nothing
/// empty; I and w's row stride multiples of 8; x and w 16-byte aligned. y may lie anyhow.
bool gemv_takes(ConstTensorView x, ConstMatrixView w, MatrixView y);

/// y = x w^T: fp32 sums, rounded once. Puts one kernel on `stream` (may be captured; allocates nothing, waits
/// for nothing) that may begin before the one in front ends (kernels/cuda/launch.h): until then it reads `w`
/// only. gemv_takes() these. Throws CudaError.
void gemv(ConstTensorView x, ConstMatrixView w, MatrixView y, cudaStream_t stream);

/// out[N, F] = bf16(bf16(gelu_tanh(g)) * u) of g = bf16(x gate^T) and u = bf16(x up^T), gate_up [2 F, I] as
/// Ops::geglu has it, with any block. gemv_takes() x, gate_up and a y of 2 F columns. As gemv().
void gemv_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView out,
                cudaStream_t stream);

}  // namespace gemmad::cuda
