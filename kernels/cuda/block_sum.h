// Sums over a block of threads, and what norms make of them. For .cu files.
#pragma once

namespace gemmad::cuda {

/// Sums over a block, one after another. The order of a sum depends on the number of threads alone.
class BlockSum {
 public:
  /// `partial`: shared, [2][32].
  explicit __device__ BlockSum(float (*partial)[32]) : partial_(partial) {}

  /// The sum of all threads' values, to each of them.
  __device__ __forceinline__ float operator()(float value) {
    const unsigned lane = threadIdx.x % 32;
    value = warp_sum(value);
    // Two places in turn: one barrier a sum is then enough.
    float* const partial = partial_[turn_];
    turn_ ^= 1;
    if (lane == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0f);
  }

 private:
  static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  }

  float (*partial_)[32];
  int turn_ = 0;
};

__device__ __forceinline__ float inverse_rms(float squares, int columns, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + eps);
}

}  // namespace gemmad::cuda
