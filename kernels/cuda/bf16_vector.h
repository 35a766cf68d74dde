// Eight bf16 values at once, the widest load there is, kept packed until they are used. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.h"

namespace gemmad::cuda {

constexpr int kVectorSize = 8;  // elements of 16 bytes

__device__ __forceinline__ void unpack(const uint4& packed, float (&values)[kVectorSize]) {
  const unsigned words[] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ uint4 pack(const float (&values)[kVectorSize]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    words[i] = static_cast<unsigned>(__bfloat16_as_ushort(pair.x)) |
               static_cast<unsigned>(__bfloat16_as_ushort(pair.y)) << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4 load_vector(const void* tensor, std::int64_t index) {
  return static_cast<const uint4*>(tensor)[index];
}

}  // namespace gemmad::cuda
