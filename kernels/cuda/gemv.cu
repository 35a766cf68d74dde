// A tile is 16 rows of weights, over all columns, by one block of threads: its warps divide the columns. A
// warp multiplies 16 x 16 weights by 16 columns of up to 8 rows of x at once (mma). Which columns those are
// is of no account to their sum, as long as both sides agree: so a thread takes eight neighbours of a row of
// weights and of a row of x with one load each, which feed two products.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/bf16_vector.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kTile = 16;   // rows of weights
constexpr int kHalf = kTile / 2;
constexpr int kRows = static_cast<int>(kMostGemvRows);  // of x
constexpr int kLoads = 4;                               // of a thread from a row, before the first is used
constexpr int kLoadColumns = 4 * kVectorSize;           // of four threads
constexpr int kChunk = kLoads * kLoadColumns;           // columns that a warp takes at once
constexpr int kRoundColumns = kWarps * kChunk;
// Rounds of a block's first tile whose weights are asked into L2 before the kernel in front has ended.
constexpr int kRoundsAhead = 4;

struct GemvProblem {
  const Bf16* x;  // [num_rows, inputs]
  const Bf16* w;
  Bf16* out;
  std::int64_t w_stride;
  std::int64_t out_stride;
  int num_rows;
  int inputs;
  int outputs;  // columns of out
  int block;    // of GeGLU
  int num_tiles;
};

/// Of a tile, that is: each column of the output is a row of weights, or one of gates and one of ups.
template <bool kGeglu>
constexpr int kTileOutputs = kGeglu ? kHalf : kTile;

/// What is row i of a tile: with GeGLU gates, then the ups of the same columns. Past the end the last ones
/// come once more.
template <bool kGeglu>
__device__ __forceinline__ const Bf16* find_row(const GemvProblem& problem, int tile, int i) {
  if constexpr (kGeglu) {
    const int column = min(tile * kHalf + i % kHalf, problem.outputs - 1);
    const int row = column + (column / problem.block + i / kHalf) * problem.block;
    return problem.w + row * problem.w_stride;
  } else {
    return problem.w + min(tile * kTile + i, problem.outputs - 1) * problem.w_stride;
  }
}

/// Zeros where nothing is there. Weights are read once: L1 has better to keep.
__device__ __forceinline__ uint4 load_weights(const Bf16* from, bool is_there) {
  uint4 loaded{};
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(loaded.x), "+r"(loaded.y), "+r"(loaded.z), "+r"(loaded.w)
      : "l"(from), "r"(static_cast<int>(is_there)));
  return loaded;
}

__device__ __forceinline__ void prefetch(const Bf16* place) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
}

/// A thread's share of 16 rows and kChunk columns: of rows lane / 4 and the eighth after it.
struct Weights {
  uint4 first[kLoads];
  uint4 second[kLoads];
};

template <bool kGeglu>
__device__ __forceinline__ void fetch(const GemvProblem& problem, int tile, int column, Weights& weights) {
  const int row = static_cast<int>(threadIdx.x) % kWarp / 4;
  const Bf16* first = find_row<kGeglu>(problem, tile, row);
  const Bf16* second = find_row<kGeglu>(problem, tile, row + kHalf);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = column + i * kLoadColumns;
    const bool is_there = at < problem.inputs;
    weights.first[i] = load_weights(first + at, is_there);
    weights.second[i] = load_weights(second + at, is_there);
  }
}

/// sums += 16 x 16 weights times 16 x 8 of x^T; sums: rows lane / 4 and the eighth after it, of each columns
/// lane % 4 * 2 and the next.
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned first_0, unsigned second_0,
                                             unsigned first_1, unsigned second_1, unsigned x_0,
                                             unsigned x_1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(first_0), "r"(second_0), "r"(first_1), "r"(second_1), "r"(x_0), "r"(x_1));
}

__device__ __forceinline__ void multiply(const GemvProblem& problem, int column, const Weights& weights,
                                         float (&sums)[4]) {
  const int row = static_cast<int>(threadIdx.x) % kWarp / 4;
  const Bf16* from = problem.x + std::int64_t{row} * problem.inputs + column;
  uint4 x[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const bool is_there = row < problem.num_rows && column + i * kLoadColumns < problem.inputs;
    x[i] = is_there ? load_vector(from + i * kLoadColumns, 0) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const uint4 &first = weights.first[i], &second = weights.second[i];
    multiply_add(sums, first.x, second.x, first.y, second.y, x[i].x, x[i].y);
    multiply_add(sums, first.z, second.z, first.w, second.w, x[i].z, x[i].w);
  }
}

/// A tile's sums of each warp: of row n of x and row i of the tile at n kTile + i.
using Partial = float[kWarps][kRows * kTile];

__device__ __forceinline__ float sum_of_warps(const Partial& partial, int place) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp)
    sum += partial[warp][place];
  return sum;
}

/// The warps' sums become a tile of the output.
template <bool kGeglu>
__device__ __forceinline__ void write_tile(const GemvProblem& problem, int tile, const float (&sums)[4],
                                           Partial& partial) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    partial[warp][(lane % 4 * 2 + i % 2) * kTile + lane / 4 + i / 2 * kHalf] = sums[i];
  __syncthreads();
  constexpr int kOutputs = kTileOutputs<kGeglu>;
  const int n = static_cast<int>(threadIdx.x) / kOutputs, i = static_cast<int>(threadIdx.x) % kOutputs;
  const int column = tile * kOutputs + i;
  if (n >= problem.num_rows || column >= problem.outputs) return;
  float value = sum_of_warps(partial, n * kTile + i);
  if constexpr (kGeglu) {
    const float up = rounded(sum_of_warps(partial, n * kTile + i + kHalf));
    value = rounded(gelu_tanh(rounded(value))) * up;
  }
  problem.out[n * problem.out_stride + column] = __float2bfloat16_rn(value);
}

/// A block takes tiles blockIdx.x, + gridDim.x, ... Each warp always has the weights of its next step on
/// their way, also of the next tile's first.
template <bool kGeglu>
__global__ __launch_bounds__(kThreads, kBlocks) void multiply_few_rows(const GemvProblem problem) {
  __shared__ Partial partial[2];  // in turn: one barrier a tile is then enough
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int num_rounds = (problem.inputs + kRoundColumns - 1) / kRoundColumns;
  const int first_column = warp * kChunk + lane % 4 * kVectorSize;
  int tile = static_cast<int>(blockIdx.x), round = 0, turn = 0;
  float sums[4] = {};
  Weights even, odd;

  fetch<kGeglu>(problem, tile, first_column, even);
  // Each lane asks for a half of a row's chunk: 128 bytes, what L2 takes at once.
  const Bf16* ahead = find_row<kGeglu>(problem, tile, lane / 2);
#pragma unroll 1
  for (int i = 1; i < min(num_rounds, kRoundsAhead); ++i) {
    const int column = i * kRoundColumns + warp * kChunk + lane % 2 * (kChunk / 2);
    if (column < problem.inputs) prefetch(ahead + column);
  }
  wait_for_previous();

  const auto step = [&](const Weights& weights, Weights& next_weights) {
    const int done_tile = tile, column = first_column + round * kRoundColumns;
    if (++round == num_rounds) {
      round = 0;
      tile += static_cast<int>(gridDim.x);
    }
    const bool goes_on = tile < problem.num_tiles;
    if (goes_on) fetch<kGeglu>(problem, tile, first_column + round * kRoundColumns, next_weights);
    multiply(problem, column, weights, sums);
    if (round == 0) {
      write_tile<kGeglu>(problem, done_tile, sums, partial[turn]);
      turn ^= 1;
#pragma unroll
      for (float& sum : sums)
        sum = 0;
    }
    return goes_on;
  };
#pragma unroll 1
  while (step(even, odd) && step(odd, even)) {
  }
}

template <bool kGeglu>
void start(GemvProblem problem, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "count multiprocessors");
  problem.num_tiles = (problem.outputs + kTileOutputs<kGeglu> - 1) / kTileOutputs<kGeglu>;
  const int blocks = std::min(problem.num_tiles, kBlocks * multiprocessors);
  launch("launch a product of few rows", multiply_few_rows<kGeglu>,
         {dim3(static_cast<unsigned>(blocks)), dim3(kThreads)}, stream, problem);
}

GemvProblem describe(ConstTensorView x, ConstMatrixView w) {
  GemvProblem problem{};
  problem.x = x.as<Bf16>();
  problem.w = w.as<Bf16>();
  problem.w_stride = w.row_stride;
  problem.num_rows = static_cast<int>(x.shape[0]);
  problem.inputs = static_cast<int>(x.shape[1]);
  return problem;
}

}  // namespace

bool gemv_takes(ConstTensorView x, ConstMatrixView w, MatrixView y) {
  return x.dtype == DType::kBF16 && w.dtype == DType::kBF16 && y.dtype == DType::kBF16 && y.rows > 0 &&
         y.rows <= kMostGemvRows && w.rows > 0 && w.columns > 0 && w.columns % kVectorSize == 0 &&
         w.row_stride % kVectorSize == 0 && is_aligned({x.data, w.data});
}

void gemv(ConstTensorView x, ConstMatrixView w, MatrixView y, cudaStream_t stream) {
  GemvProblem problem = describe(x, w);
  problem.out = y.as<Bf16>();
  problem.out_stride = y.row_stride;
  problem.outputs = static_cast<int>(y.columns);
  start<false>(problem, stream);
}

void gemv_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView out,
                cudaStream_t stream) {
  GemvProblem problem = describe(x, gate_up);
  problem.out = out.as<Bf16>();
  problem.out_stride = out.shape[1];
  problem.outputs = static_cast<int>(out.shape[1]);
  problem.block = static_cast<int>(block);
  start<true>(problem, stream);
}

}  // namespace gemmad::cuda
