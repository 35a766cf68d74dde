// Normalisation by the range of a whole sequence, in two steps: blocks each find sum, least and greatest of
// some rows; then every row's block makes of these, in one order, those of its sequence.
#include <cmath>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kParts = 128;  // of a sequence: rows p, p + kParts...
constexpr int kPartFloats = 3;
static_assert(kParts * kPartFloats == Ops::kRangeScratch);

struct RangeArgs {
  const Bf16* x;
  const std::int32_t* rows;
  const std::int32_t* bounds;  // [num_sequences + 1]
  float eps;
  float* parts;  // [num_sequences][kParts][kPartFloats]
  Bf16* out;
  int num_sequences;
  std::int64_t width;
};

/// Sum, least and greatest of some values; of none to begin with.
struct Range {
  float sum = 0;
  float least = INFINITY;
  float greatest = -INFINITY;
};

/// That of all threads' values, to each of them. `shared`: [3][32].
__device__ Range over_block(Range range, float (*shared)[32]) {
  const unsigned lane = threadIdx.x % 32;
  const auto over_warp = [&] {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      range.sum += __shfl_xor_sync(~0u, range.sum, distance);
      range.least = fminf(range.least, __shfl_xor_sync(~0u, range.least, distance));
      range.greatest = fmaxf(range.greatest, __shfl_xor_sync(~0u, range.greatest, distance));
    }
  };
  over_warp();
  if (lane == 0) {
    shared[0][threadIdx.x / 32] = range.sum;
    shared[1][threadIdx.x / 32] = range.least;
    shared[2][threadIdx.x / 32] = range.greatest;
  }
  __syncthreads();
  range = {};
  if (lane < blockDim.x / 32) range = {shared[0][lane], shared[1][lane], shared[2][lane]};
  over_warp();
  return range;
}

/// Block (b, p): part p of sequence b. Pack divides the width.
template <int Pack>
__global__ __launch_bounds__(kThreads) void find_ranges(const RangeArgs args) {
  __shared__ float shared[3][32];
  let_next_start();
  wait_for_previous();
  const unsigned sequence = blockIdx.x, part = blockIdx.y;
  const int end = args.bounds[sequence + 1];
  Range range;
  for (int m = args.bounds[sequence] + static_cast<int>(part); m < end; m += kParts) {
    const Bf16* row = args.x + args.rows[m] * args.width;
    for (std::int64_t i = Pack * threadIdx.x; i < args.width; i += Pack * kThreads) {
      float values[Pack];
      load(row + i, values);
#pragma unroll
      for (const float value : values) {
        range.sum += value;
        range.least = fminf(range.least, value);
        range.greatest = fmaxf(range.greatest, value);
      }
    }
  }
  range = over_block(range, shared);
  if (threadIdx.x > 0) return;
  float* const to = args.parts + (std::int64_t{sequence} * kParts + part) * kPartFloats;
  to[0] = range.sum;
  to[1] = range.least;
  to[2] = range.greatest;
}

/// The last sequence that does not begin after row m: the one that has it.
__device__ int find_sequence(const RangeArgs& args, int m) {
  int low = 0, high = args.num_sequences;  // low begins no later than m, high does
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (args.bounds[middle] <= m ? low : high) = middle;
  }
  return low;
}

/// One block a row of `out`; Pack divides the width.
template <int Pack>
__global__ __launch_bounds__(kThreads) void normalize_ranges(const RangeArgs args) {
  static_assert(kParts <= kThreads);
  __shared__ float shared[3][32];
  let_next_start();
  wait_for_previous();
  const int m = static_cast<int>(blockIdx.x);
  const int sequence = find_sequence(args, m);
  Range range;
  if (threadIdx.x < kParts) {
    const float* part = args.parts + (std::int64_t{sequence} * kParts + threadIdx.x) * kPartFloats;
    range = {part[0], part[1], part[2]};
  }
  range = over_block(range, shared);
  const std::int64_t count = (args.bounds[sequence + 1] - args.bounds[sequence]) * args.width;
  const float mean = rounded(range.sum) / static_cast<float>(count);
  const float divisor = rounded(rounded(range.greatest - range.least) + args.eps);
  const Bf16* from = args.x + args.rows[m] * args.width;
  Bf16* to = args.out + m * args.width;
  for (std::int64_t i = Pack * threadIdx.x; i < args.width; i += Pack * kThreads) {
    float values[Pack];
    load(from + i, values);
#pragma unroll
    for (float& value : values)
      value = 8.0f * (value - mean) / divisor;
    store(values, to + i);
  }
}

}  // namespace

void range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                TensorView scratch, TensorView out, cudaStream_t stream) {
  const std::int64_t width = out.shape[1];
  const std::int64_t num_sequences = scratch.shape[0];
  if (out.shape[0] == 0 || width == 0 || num_sequences == 0) return;
  RangeArgs args{};
  args.x = x.as<Bf16>();
  args.rows = rows.as<std::int32_t>();
  args.bounds = bounds.as<std::int32_t>();
  args.eps = eps;
  args.parts = scratch.as<float>();
  args.out = out.as<Bf16>();
  args.num_sequences = static_cast<int>(num_sequences);
  args.width = width;
  const bool wide = width % 8 == 0 && is_aligned({x.data, out.data});
  launch("launch range_rows' ranges", wide ? find_ranges<8> : find_ranges<1>,
         {dim3(static_cast<unsigned>(num_sequences), kParts), dim3(kThreads)}, stream, args);
  launch("launch range_rows", wide ? normalize_ranges<8> : normalize_ranges<1>,
         {dim3(static_cast<unsigned>(out.shape[0])), dim3(kThreads)}, stream, args);
}

}  // namespace gemmad::cuda
