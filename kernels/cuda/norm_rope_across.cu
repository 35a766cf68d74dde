#include <algorithm>

#include "kernels/cuda/bf16.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kWide = 8;  // pairs

struct NormRopeAcrossArgs {
  Bf16* qkv;  // [N, 3C]
  const Bf16* q_weight;
  const Bf16* k_weight;
  const Bf16* rope;  // [P, C]
  float eps;
  int num_positions;
  int width;  // C
  int head_dim;
};

/// Pack pairs of a row, of frequencies f, f + 1... of all heads; they are of one head.
template <int Pack, RopePairs kPairs>
struct Pairs {
  float a[Pack];
  float b[Pack];

  /// The column of the first of f's pair, in a row of all heads.
  static __device__ __forceinline__ int column(int f, int head_dim) {
    if constexpr (kPairs == RopePairs::kNeighbours) return 2 * f;
    return 2 * f - f % (head_dim / 2);
  }

  /// `at`: the first pair's first element.
  __device__ __forceinline__ void load_from(const Bf16* at, int head_dim) {
    if constexpr (kPairs == RopePairs::kHalves) {
      load(at, a);
      load(at + head_dim / 2, b);
    } else {
      constexpr int kHalf = (Pack + 1) / 2;
      float low[Pack];
      float high[Pack];
      load(at, low);
      load(at + Pack, high);
      if constexpr (Pack == 1) {
        a[0] = low[0];
        b[0] = high[0];
      } else {
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
          a[i] = low[2 * i];
          b[i] = low[2 * i + 1];
          a[kHalf + i] = high[2 * i];
          b[kHalf + i] = high[2 * i + 1];
        }
      }
    }
  }

  __device__ __forceinline__ void store_to(Bf16* at, int head_dim) const {
    if constexpr (kPairs == RopePairs::kHalves) {
      store(a, at);
      store(b, at + head_dim / 2);
    } else {
      constexpr int kHalf = (Pack + 1) / 2;
      float low[Pack];
      float high[Pack];
      if constexpr (Pack == 1) {
        low[0] = a[0];
        high[0] = b[0];
      } else {
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
          low[2 * i] = a[i];
          low[2 * i + 1] = b[i];
          high[2 * i] = a[kHalf + i];
          high[2 * i + 1] = b[kHalf + i];
        }
      }
      store(low, at);
      store(high, at + Pack);
    }
  }

  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Pack; ++i)
      sum += a[i] * a[i] + b[i] * b[i];
    return sum;
  }

  __device__ __forceinline__ void normalize(float factor, const Pairs& weight) {
#pragma unroll
    for (int i = 0; i < Pack; ++i) {
      a[i] = rounded(a[i] * factor * weight.a[i]);
      b[i] = rounded(b[i] * factor * weight.b[i]);
    }
  }

  __device__ __forceinline__ void turn(const float (&cosines)[Pack], const float (&sines)[Pack]) {
    // Which products are tensors of the model, and so rounded, is the pairs' own.
    const auto second = [](float product) {
      return kPairs == RopePairs::kNeighbours ? rounded(product) : product;
    };
#pragma unroll
    for (int i = 0; i < Pack; ++i) {
      const float x = a[i], y = b[i];
      a[i] = rounded(x * cosines[i]) - second(y * sines[i]);
      b[i] = rounded(y * cosines[i]) + second(x * sines[i]);
    }
  }
};

/// One block a row. Pack divides half a head. A thread reads and writes the same places in both rounds.
template <int Pack, RopePairs kPairs>
__global__ __launch_bounds__(kMaxThreads) void norm_rope_rows(const NormRopeAcrossArgs args) {
  __shared__ float partial[2][32];
  let_next_start();
  wait_for_previous();
  using Some = Pairs<Pack, kPairs>;
  const int half_width = args.width / 2;
  const int step = Pack * static_cast<int>(blockDim.x);
  const int first = Pack * static_cast<int>(threadIdx.x);
  Bf16* const row = args.qkv + std::int64_t{blockIdx.x} * 3 * args.width;
  const Bf16* angles = args.rope + std::int64_t{blockIdx.x % args.num_positions} * args.width;

  // Each head's query is followed by its key and its value.
  const auto query_of = [&](int column) {
    return row + column + 2 * (column / args.head_dim) * args.head_dim;
  };
  float q_squares = 0;
  float k_squares = 0;
  for (int f = first; f < half_width; f += step) {
    const Bf16* query = query_of(Some::column(f, args.head_dim));
    Some q, k;
    q.load_from(query, args.head_dim);
    k.load_from(query + args.head_dim, args.head_dim);
    q_squares += q.squares();
    k_squares += k.squares();
  }
  BlockSum block_sum(partial);
  const float q_factor = inverse_rms(block_sum(q_squares), args.width, args.eps);
  const float k_factor = inverse_rms(block_sum(k_squares), args.width, args.eps);
  for (int f = first; f < half_width; f += step) {
    float cosines[Pack];
    float sines[Pack];
    load(angles + f, cosines);
    load(angles + half_width + f, sines);
    const int column = Some::column(f, args.head_dim);
    const auto finish = [&](Bf16* at, const Bf16* weights, float factor) {
      Some values, weight;
      values.load_from(at, args.head_dim);
      weight.load_from(weights + column, args.head_dim);
      values.normalize(factor, weight);
      values.turn(cosines, sines);
      values.store_to(at, args.head_dim);
    };
    Bf16* const query = query_of(column);
    finish(query, args.q_weight, q_factor);
    finish(query + args.head_dim, args.k_weight, k_factor);
  }
}

template <RopePairs kPairs>
void start(const NormRopeAcrossArgs& args, std::int64_t num_rows, cudaStream_t stream) {
  // Then half a head, half a row and every head begin at multiples of 16 bytes.
  const bool wide =
      args.head_dim % (2 * kWide) == 0 && is_aligned({args.qkv, args.q_weight, args.k_weight, args.rope});
  const int threads = (args.width / (wide ? 2 * kWide : 2) + 31) / 32 * 32;
  launch("launch norm_rope_across", wide ? norm_rope_rows<kWide, kPairs> : norm_rope_rows<1, kPairs>,
         {dim3(static_cast<unsigned>(num_rows)), dim3(static_cast<unsigned>(std::min(threads, kMaxThreads)))},
         stream, args);
}

}  // namespace

void norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                      ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                      cudaStream_t stream) {
  const std::int64_t num_rows = qkv.shape[0];
  if (num_rows == 0) return;
  NormRopeAcrossArgs args{};
  args.qkv = qkv.as<Bf16>();
  args.q_weight = q_weight.as<Bf16>();
  args.k_weight = k_weight.as<Bf16>();
  args.rope = rope.as<Bf16>();
  args.eps = eps;
  args.num_positions = static_cast<int>(rope.shape[0]);
  args.width = static_cast<int>(heads.q_width());
  args.head_dim = static_cast<int>(heads.head_dim);
  if (pairs == RopePairs::kHalves)
    start<RopePairs::kHalves>(args, num_rows, stream);
  else
    start<RopePairs::kNeighbours>(args, num_rows, stream);
}

}  // namespace gemmad::cuda
