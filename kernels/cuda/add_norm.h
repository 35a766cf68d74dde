// RMS norms, alone and with the residual add and the sum over devices before them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/ops.h"

namespace gemmad::cuda {

// Everything is BF16, computed in fp32; the same bytes give the same bytes. Asynchronous on `stream`,
// allocates nothing, may be captured. Fast where D is a multiple of 8 up to 16384 and all tensors are aligned
// to 16 bytes. Arguments have been checked (kernels/ops.h). Throws CudaError.

/// out = bf16(x * rsqrt(mean(x^2) + eps) * (1 + weight)). x, out [N, D], may be the same; weight [D],
/// without data zeros.
void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, cudaStream_t stream);

/// As kernels/ops.h says: x_out = bf16(x + rms_norm(y, weight)); normed = rms_norm(x_out, next_weight), of
/// the rounded x_out. With peers: y = bf16 of the fp32 sum of all addends, member after member, the same
/// bytes on all of them. Then the work on the device begins by waiting for the other members, without a
/// deadline (kernels/base/peer_addends.h); `peers` is copied.
void add_norm(const Ops::AddNorm& args, cudaStream_t stream);

}  // namespace gemmad::cuda
