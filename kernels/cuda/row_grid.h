// How kernels that go through rows element by element are cut into blocks, and how wide they load. For .cu
// files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace gemmad::cuda {

/// Whether all are multiples of 16 bytes; null is.
inline bool is_aligned(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; });
}

/// Blocks of `threads` threads, each with `pack` columns of a row: row blockIdx.x, blockIdx.y of its parts.
inline dim3 row_grid(std::int64_t rows, std::int64_t columns, int pack, int threads) {
  const std::int64_t width = std::int64_t{pack} * threads;
  return {static_cast<unsigned>(rows), static_cast<unsigned>((columns + width - 1) / width)};
}

/// In such a block: this thread's first column.
template <int Pack>
__device__ __forceinline__ std::int64_t first_column() {
  return Pack * (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x);
}

}  // namespace gemmad::cuda
