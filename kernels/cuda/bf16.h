// bf16 as the kernels compute with it: rounded where a tensor is, wide in between. For .cu files.
#pragma once

#include <cuda_bf16.h>

namespace gemmad::cuda {

using Bf16 = __nv_bfloat16;

/// The value after it was rounded to bf16.
__device__ __forceinline__ float rounded(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

/// N neighbouring values that are loaded and stored at once: 2 N bytes, so aligned.
template <int N>
struct alignas(2 * N) Bf16Pack {
  Bf16 values[N];
};

template <int N>
__device__ __forceinline__ void load(const Bf16* from, float (&to)[N]) {
  const auto pack = *reinterpret_cast<const Bf16Pack<N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i)
    to[i] = __bfloat162float(pack.values[i]);
}

template <int N>
__device__ __forceinline__ void store(const float (&from)[N], Bf16* to) {
  Bf16Pack<N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i)
    pack.values[i] = __float2bfloat16_rn(from[i]);
  *reinterpret_cast<Bf16Pack<N>*>(to) = pack;
}

}  // namespace gemmad::cuda
