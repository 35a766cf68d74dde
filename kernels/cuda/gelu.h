// The activation, for .cu files.
#pragma once

namespace gemmad::cuda {

/// gelu_tanh as kernels/ops.h (geglu) has it, in the form without cancellation for negative g. Goes to g and
/// to -0 at its ends: the exponential becomes 0 or infinite.
__device__ __forceinline__ float gelu_tanh(float g) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216f;
  return g / (1.0f + __expf(-kTwoSqrt2OverPi * (g + 0.044715f * (g * g * g))));
}

}  // namespace gemmad::cuda
