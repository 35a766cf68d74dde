#include "kernels/cuda/add_norm.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/bf16_vector.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {

namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxVectors = 4;  // of a row, a thread

/// What the kernels are given. y is that of one tensor, or the sum of the peers' addends.
struct Parameters {
  const Bf16* y;
  const Bf16* weight;  // null: zeros
  const Bf16* x;       // null: nothing is added, x_out is the norm of y
  Bf16* x_out;
  const Bf16* next_weight;
  Bf16* normed;  // null: no second norm
  std::int64_t rows;
  int columns;
  float eps;
  PeerAddends peers;  // more than one: they meet first
};

/// First step of two: rows [begin, end) of the sum, written to all members. D is a multiple of 8.
__global__ void __launch_bounds__(kMaxThreads, 2)
    sum_rows_kernel(const __grid_constant__ PeerAddends peers, std::int64_t begin, std::int64_t end,
                    int columns) {
  let_next_start();
  wait_for_previous();
  meet_peers(peers);
  const std::int64_t row_vectors = columns / kVectorSize;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t index = begin * row_vectors + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; index < end * row_vectors; index += stride) {
    float sum[kVectorSize];
    sum_vectors(peers, index, sum);
    const uint4 packed = pack(sum);
    for (int member = 0; member < peers.num_peers; ++member)
      static_cast<uint4*>(peers.sums[member])[index] = packed;
  }
  // The others read it behind a release of the next kernel, which needs no help from this one in the model of
  // memory; it costs nothing to have the stores across before this grid ends.
  __threadfence_system();
}

/// A block takes rows blockIdx.x, + gridDim.x, ...; a thread keeps its vectors of a row in registers between
/// the norms. D is a multiple of 8, and kVectors * blockDim.x vectors are a row or more.
template <int kVectors, bool kSumPeers>
__global__ void __launch_bounds__(kMaxThreads, kVectors == 1 ? 2 : 1)
    add_norm_kernel(const __grid_constant__ Parameters p) {
  __shared__ float partial[2][32];
  let_next_start();

  const int row_vectors = p.columns / kVectorSize;
  const auto place = [&](int i) { return static_cast<int>(threadIdx.x + i * blockDim.x); };
  uint4 weight[kVectors];
  uint4 next_weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (place(i) >= row_vectors) continue;
    weight[i] = p.weight != nullptr ? load_vector(p.weight, place(i)) : uint4{};
    if (p.normed != nullptr) next_weight[i] = load_vector(p.next_weight, place(i));
  }
  wait_for_previous();
  if (p.peers.num_peers > 1) meet_peers(p.peers);

  BlockSum block_sum(partial);
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const std::int64_t first = row * row_vectors;
    float values[kVectors][kVectorSize];  // y, then x_out
    uint4 x[kVectors];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (place(i) >= row_vectors) continue;
      if (p.x != nullptr) x[i] = load_vector(p.x, first + place(i));
      if constexpr (kSumPeers) {
        sum_vectors(p.peers, first + place(i), values[i]);
#pragma unroll
        for (float& value : values[i])
          value = rounded(value);
      } else {
        unpack(load_vector(p.y, first + place(i)), values[i]);
      }
#pragma unroll
      for (const float value : values[i])
        squares += value * value;
    }

    float factor = inverse_rms(block_sum(squares), p.columns, p.eps);
    squares = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (place(i) >= row_vectors) continue;
      float w[kVectorSize];
      unpack(weight[i], w);
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        values[i][j] = rounded(values[i][j] * factor * (1.0f + w[j]));
      if (p.x != nullptr) {
        unpack(x[i], w);
#pragma unroll
        for (int j = 0; j < kVectorSize; ++j)
          values[i][j] = rounded(w[j] + values[i][j]);
      }
      reinterpret_cast<uint4*>(p.x_out)[first + place(i)] = pack(values[i]);
#pragma unroll
      for (const float value : values[i])
        squares += value * value;
    }
    if (p.normed == nullptr) continue;

    factor = inverse_rms(block_sum(squares), p.columns, p.eps);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (place(i) >= row_vectors) continue;
      float w[kVectorSize];
      unpack(next_weight[i], w);
#pragma unroll
      for (int j = 0; j < kVectorSize; ++j)
        values[i][j] = values[i][j] * factor * (1.0f + w[j]);
      reinterpret_cast<uint4*>(p.normed)[first + place(i)] = pack(values[i]);
    }
  }
}

/// The same for any D, element by element: y is read, and with peers summed, twice, x_out is read back.
template <bool kSumPeers>
__global__ void __launch_bounds__(kMaxThreads, 2) add_norm_any_kernel(const __grid_constant__ Parameters p) {
  __shared__ float partial[2][32];
  let_next_start();
  wait_for_previous();
  if (p.peers.num_peers > 1) meet_peers(p.peers);

  const auto y = [&](std::int64_t index) {
    if constexpr (!kSumPeers) return __bfloat162float(p.y[index]);
    float sum = 0;
    for (int member = 0; member < p.peers.num_peers; ++member)
      sum += __bfloat162float(static_cast<const Bf16*>(p.peers.addends[member])[index]);
    return rounded(sum);
  };
  BlockSum block_sum(partial);
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const std::int64_t first = row * p.columns;
    float squares = 0;
    for (int column = threadIdx.x; column < p.columns; column += blockDim.x) {
      const float value = y(first + column);
      squares += value * value;
    }
    float factor = inverse_rms(block_sum(squares), p.columns, p.eps);
    squares = 0;
    for (int column = threadIdx.x; column < p.columns; column += blockDim.x) {
      const std::int64_t index = first + column;
      const float weight = p.weight != nullptr ? __bfloat162float(p.weight[column]) : 0.0f;
      float value = rounded(y(index) * factor * (1.0f + weight));
      if (p.x != nullptr) value = rounded(__bfloat162float(p.x[index]) + value);
      p.x_out[index] = __float2bfloat16_rn(value);
      squares += value * value;
    }
    if (p.normed == nullptr) continue;
    factor = inverse_rms(block_sum(squares), p.columns, p.eps);
    for (int column = threadIdx.x; column < p.columns; column += blockDim.x) {
      const float value = __bfloat162float(p.x_out[first + column]);
      p.normed[first + column] =
          __float2bfloat16_rn(value * factor * (1.0f + __bfloat162float(p.next_weight[column])));
    }
  }
}

/// Blocks of a kernel in which members meet: from what is the same at all of them. Where several fit on a
/// multiprocessor (see the kernels' bounds), more of them hide the way to the other device.
unsigned meeting_blocks(std::int64_t wanted, int columns) {
  const std::int64_t most =
      columns <= kMaxThreads * kVectorSize ? PeerAddends::kMaxBlocks : PeerAddends::kMaxBlocks / 2;
  return static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, most));
}

template <bool kSumPeers>
void start(const Parameters& p, cudaStream_t stream) {
  const unsigned blocks =
      p.peers.num_peers > 1 ? meeting_blocks(p.rows, p.columns) : static_cast<unsigned>(p.rows);
  const int vectors = p.columns / kVectorSize;
  const bool fast = p.columns % kVectorSize == 0 && vectors <= kMaxVectors * kMaxThreads &&
                    is_aligned({p.y, p.weight, p.x, p.x_out, p.next_weight, p.normed});
  const auto threads = static_cast<unsigned>(std::min((vectors + 31) / 32 * 32, kMaxThreads));
  if (!fast) {
    launch("launch add_norm", add_norm_any_kernel<kSumPeers>, {blocks, 256}, stream, p);
  } else if (vectors <= kMaxThreads) {
    launch("launch add_norm", add_norm_kernel<1, kSumPeers>, {blocks, threads}, stream, p);
  } else if (vectors <= 2 * kMaxThreads) {
    launch("launch add_norm", add_norm_kernel<2, kSumPeers>, {blocks, threads}, stream, p);
  } else {
    launch("launch add_norm", add_norm_kernel<kMaxVectors, kSumPeers>, {blocks, threads}, stream, p);
  }
}

bool takes_two_steps(const Parameters& p) {
  return p.columns % kVectorSize == 0 &&
         p.rows * p.columns * static_cast<std::int64_t>(sizeof(Bf16)) >= p.peers.two_steps_from_bytes;
}

void start_sum_of_rows(const Parameters& p, cudaStream_t stream) {
  const int members = p.peers.num_peers;
  const std::int64_t most_rows = (p.rows + members - 1) / members;
  const std::int64_t vectors = most_rows * p.columns / kVectorSize;
  const unsigned blocks = meeting_blocks((vectors + kMaxThreads - 1) / kMaxThreads, kVectorSize);
  launch("launch add_norm's sum", sum_rows_kernel, {blocks, kMaxThreads}, stream, p.peers,
         p.rows * p.peers.own / members, p.rows * (p.peers.own + 1) / members, p.columns);
}

}  // namespace

void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, cudaStream_t stream) {
  if (x.shape.num_elements() == 0) return;
  Parameters p{};
  p.y = x.as<Bf16>();
  p.weight = weight.as<Bf16>();
  p.x_out = out.as<Bf16>();
  p.rows = x.shape[0];
  p.columns = static_cast<int>(x.shape[1]);
  p.eps = eps;
  start<false>(p, stream);
}

void add_norm(const Ops::AddNorm& args, cudaStream_t stream) {
  if (args.x_out.shape.num_elements() == 0) return;
  Parameters p{};
  p.y = args.y.as<Bf16>();
  p.weight = args.weight.as<Bf16>();
  p.x = args.x.as<Bf16>();
  p.x_out = args.x_out.as<Bf16>();
  p.next_weight = args.next_weight.as<Bf16>();
  p.normed = args.normed.as<Bf16>();
  p.rows = args.x_out.shape[0];
  p.columns = static_cast<int>(args.x_out.shape[1]);
  p.eps = args.eps;
  if (args.peers == nullptr) {
    start<false>(p, stream);
    return;
  }
  p.peers = *args.peers;
  if (!takes_two_steps(p)) {
    start<true>(p, stream);
    return;
  }
  start_sum_of_rows(p, stream);
  p.y = static_cast<const Bf16*>(p.peers.sums[p.peers.own]);
  start<false>(p, stream);
}

}  // namespace gemmad::cuda
