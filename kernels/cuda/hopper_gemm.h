// Products of activations and weights on Hopper (compute capability 9.0), for few tokens: the weights are
// streamed through the tensor copy engine once and at the speed of memory, beginning before the kernel in
// front has ended. Weights take the place of wgmma's 64 rows, tokens that of its columns.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/tensor.h"
#include "kernels/cuda/hopper_plan.h"

namespace gemmad::cuda {

/// Whether the current device can compute y[N, O] = x[N, I] w[O, I]^T this way: compute capability 9.0; all
/// BF16; shapes agree and none is empty; I at least 64; I and w's row stride multiples of 8; x and w 16-byte
/// aligned. y may have any row stride and alignment; both multiples of 8 elements make it faster.
bool hopper_gemm_takes(ConstTensorView x, ConstMatrixView w, MatrixView y);

/// The same for out[N, F] = geglu(x gate_up^T): gate_up [2 F, I] is 64 rows of gates, then the 64 rows of ups
/// of the same columns, then the next gates; F is a multiple of 64.
bool hopper_geglu_gemm_takes(ConstTensorView x, ConstMatrixView gate_up, TensorView out);

/// y = x w^T: fp32 sums, rounded once. Puts one kernel on `stream` (may be captured; allocates nothing, waits
/// for nothing) that may begin before the one in front ends (kernels/cuda/launch.h): until then it reads `w`
/// only. Same shapes, strides and values give the same bytes. Throws std::invalid_argument unless
/// hopper_gemm_takes() these, CudaError.
void hopper_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, cudaStream_t stream);

/// out = bf16(bf16(gelu_tanh(g)) * u) of g = bf16(x gate^T) and u = bf16(x up^T). As hopper_gemm().
void hopper_geglu_gemm(ConstTensorView x, ConstMatrixView gate_up, TensorView out, cudaStream_t stream);

/// What hopper_gemm() (hopper_geglu_gemm()) does with operands of these sizes: choose_hopper_plan() for the
/// current device.
HopperGemmPlan hopper_gemm_plan(const HopperGemmSizes& sizes);

/// hopper_gemm(), or hopper_geglu_gemm() into y, by a plan of the caller's. Throws std::invalid_argument also
/// for one that is not possible.
void hopper_gemm_by_plan(ConstTensorView x, ConstMatrixView w, MatrixView y, bool geglu,
                         const HopperGemmPlan& plan, cudaStream_t stream);

}  // namespace gemmad::cuda
