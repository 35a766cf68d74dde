// Products of activations and weights on Hopper (compute capability 9.0), for few tokens: the weights are
// streamed through the tensor copy engine once and at the speed of memory, beginning before the kernel in
// front has ended. Weights take the place of wgmma's 64 rows, tokens that of its columns.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/tensor.h"

namespace gemmad::cuda {

/// How a product is cut into work of thread blocks. A block makes `rows` rows of the weights (columns of the
/// product) for `token_tile` tokens. Only `split` can change bytes of the result.
struct HopperGemmPlan {
  int token_tile = 0;   // 16, 32, 64, 128, 192 or 256; 16 to 128 when held is 2
  int split = 1;        // blocks of a cluster that divide K among them: 1, 2, 4 or 8
  int share = 1;        // blocks of a cluster that fetch the same tokens only once: 1, 2, 4 or 8
  int rows = 128;       // or 256, when paired and with 64 or 128 tokens
  int held = 1;         // blocks that fit a multiprocessor at once, with smaller rings: 1 or 2
  int ahead = 0;        // steps of K beyond the ring whose weights are asked into L2 at the very beginning
  bool paired = false;  // GeGLU without exchange among threads: 128, 192 or 256 (with 256 rows: 64 or 128)
                        // tokens, split and held 1; follows only where `out` is 16-byte aligned
  bool whole = false;   // no halves of tiles in the last round (paired, 256 tokens, share 2)
};

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

/// What hopper_gemm() (hopper_geglu_gemm()) does with x [tokens, columns] and w [rows, columns]. `share`,
/// which changes no byte of the result, follows from what clusters the current device holds at once too, the
/// rest from the shapes alone.
HopperGemmPlan hopper_gemm_plan(std::int64_t tokens, std::int64_t rows, std::int64_t columns, bool geglu);

/// hopper_gemm(), or hopper_geglu_gemm() into y, by a plan of the caller's (for measurements). Throws
/// std::invalid_argument also for a plan that cannot be: split * share is at most 8, split at most
/// ceil(I / 64), token_tile / share a multiple of 8.
void hopper_gemm_by_plan(ConstTensorView x, ConstMatrixView w, MatrixView y, bool geglu,
                         const HopperGemmPlan& plan, cudaStream_t stream);

}  // namespace gemmad::cuda
