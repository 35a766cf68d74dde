#include <cstdint>

#include "kernels/cuda/bf16_vector.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 128;
constexpr int kHeadsAtOnce = 3;  // of a thread: so many loads are under way

struct NormRopeArgs {
  Bf16* qkv;  // [N, (H + 2K) S]
  const Bf16* q_weight;
  const Bf16* k_weight;
  const Bf16* rope;  // [P, S]
  const std::int32_t* positions;
  float eps;
  int num_kv_heads;
  int queries;            // of a kv head
  std::uint32_t inverse;  // what divides by queries + 1: 2^32 / (queries + 1), rounded up
};

/// Two neighbours of a half of a head.
using Pair = __nv_bfloat162;
constexpr int kPairs = kVectorSize / 2;

union Vector {
  uint4 bits;
  Pair pairs[kPairs];
  __device__ Vector() {}
};

/// Over aligned groups of so many lanes.
template <int kLanes>
__device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/// What a thread holds of a weight: 1 + weight of its elements of both halves.
struct Factors {
  float a[kVectorSize];
  float b[kVectorSize];

  __device__ Factors(const Bf16* weight, int half) {
    unpack(load_vector(weight, 0), a);
    unpack(load_vector(weight + half, 0), b);
#pragma unroll
    for (int i = 0; i < kVectorSize; ++i) {
      a[i] += 1.0f;
      b[i] += 1.0f;
    }
  }
};

/// One head's elements of a thread, both halves: becomes norm, then turned.
template <int kLanes>
__device__ __forceinline__ void normalize_and_turn(uint4& first, uint4& second, const Factors& q,
                                                   const Factors& k, bool is_key, const Vector& cosines,
                                                   const Vector& sines, float eps) {
  float a[kVectorSize];
  float b[kVectorSize];
  unpack(first, a);
  unpack(second, b);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i)
    squares += a[i] * a[i] + b[i] * b[i];
  constexpr float kHeadDim = 2 * kLanes * kVectorSize;
  const float factor = rsqrtf(sum_over_lanes<kLanes>(squares) / kHeadDim + eps);
#pragma unroll
  for (int i = 0; i < kVectorSize; ++i) {
    a[i] = a[i] * factor * (is_key ? k.a[i] : q.a[i]);
    b[i] = b[i] * factor * (is_key ? k.b[i] : q.b[i]);
  }
  Vector x, y, turned_x, turned_y;
  x.bits = pack(a);
  y.bits = pack(b);
  // Both products are tensors of the model, and so rounded before they are added: nothing may be fused.
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    turned_x.pairs[i] =
        __hsub2_rn(__hmul2_rn(x.pairs[i], cosines.pairs[i]), __hmul2_rn(y.pairs[i], sines.pairs[i]));
    turned_y.pairs[i] =
        __hadd2_rn(__hmul2_rn(y.pairs[i], cosines.pairs[i]), __hmul2_rn(x.pairs[i], sines.pairs[i]));
  }
  first = turned_x.bits;
  second = turned_y.bits;
}

/// kLanes lanes a head, each with eight neighbours of the first half and their partners of the second, so
/// that the rotation needs no other lane. Head size = 16 kLanes. Block (n, y): some heads of row n,
/// kHeadsAtOnce a thread. Weights and angles no kernel writes, nor the positions (the host copies them): they
/// come while the kernel before this one still runs.
template <int kLanes>
__global__ __launch_bounds__(kThreads) void norm_rope_heads(const NormRopeArgs args) {
  constexpr int kHalf = kLanes * kVectorSize;
  constexpr int kHeadDim = 2 * kHalf;
  constexpr int kTeams = kThreads / kLanes;
  let_next_start();
  const int first = static_cast<int>(threadIdx.x) % kLanes * kVectorSize;
  const int row = static_cast<int>(blockIdx.x);
  const Bf16* angles = args.rope + std::int64_t{args.positions[row]} * kHeadDim + first;
  const Factors q(args.q_weight + first, kHalf);
  const Factors k(args.k_weight + first, kHalf);
  Vector cosines, sines;
  cosines.bits = load_vector(angles, 0);
  sines.bits = load_vector(angles + kHalf, 0);

  const int num_heads = args.num_kv_heads * (args.queries + 1);  // keys are heads here, values are not
  const int first_head =
      static_cast<int>(blockIdx.y) * kTeams * kHeadsAtOnce + static_cast<int>(threadIdx.x) / kLanes;
  Bf16* const row_begin =
      args.qkv + std::int64_t{row} * args.num_kv_heads * (args.queries + 2) * kHeadDim + first;
  Bf16* heads[kHeadsAtOnce];
  bool is_key[kHeadsAtOnce];
  uint4 a[kHeadsAtOnce];
  uint4 b[kHeadsAtOnce];
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kHeadsAtOnce; ++i) {
    // Past the end: the last head once more, which is not stored.
    const int head = min(first_head + i * kTeams, num_heads - 1);
    const int group = static_cast<int>(__umulhi(static_cast<unsigned>(head), args.inverse));
    is_key[i] = head - group * (args.queries + 1) == args.queries;
    heads[i] = row_begin + std::int64_t{head + group} * kHeadDim;  // a value before each group but the first
    a[i] = load_vector(heads[i], 0);
    b[i] = load_vector(heads[i] + kHalf, 0);
  }
#pragma unroll
  for (int i = 0; i < kHeadsAtOnce; ++i) {
    normalize_and_turn<kLanes>(a[i], b[i], q, k, is_key[i], cosines, sines, args.eps);
    if (first_head + i * kTeams < num_heads) {
      *reinterpret_cast<uint4*>(heads[i]) = a[i];
      *reinterpret_cast<uint4*>(heads[i] + kHalf) = b[i];
    }
  }
}

/// Any head size and alignment: a thread for each pair, one block a head and row.
__global__ void norm_rope_any(NormRopeArgs args, int head_dim) {
  const int half = head_dim / 2;
  const std::int64_t row = blockIdx.x;
  const int head_index = static_cast<int>(blockIdx.y);
  const int group = head_index / (args.queries + 1);
  const bool is_key = head_index % (args.queries + 1) == args.queries;
  wait_for_previous();
  let_next_start();
  Bf16* head = args.qkv + (row * args.num_kv_heads * (args.queries + 2) + head_index + group) * head_dim;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < head_dim; i += kWarp) {
    const float value = __bfloat162float(head[i]);
    squares += value * value;
  }
  const float factor = rsqrtf(sum_over_lanes<kWarp>(squares) / static_cast<float>(head_dim) + args.eps);
  const Bf16* weight = is_key ? args.k_weight : args.q_weight;
  const Bf16* angles = args.rope + std::int64_t{args.positions[row]} * head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kWarp) {
    const float x = rounded(__bfloat162float(head[i]) * factor * (1.0f + __bfloat162float(weight[i])));
    const float y =
        rounded(__bfloat162float(head[i + half]) * factor * (1.0f + __bfloat162float(weight[i + half])));
    const float cosine = __bfloat162float(angles[i]);
    const float sine = __bfloat162float(angles[i + half]);
    head[i] = __float2bfloat16_rn(rounded(x * cosine) - rounded(y * sine));
    head[i + half] = __float2bfloat16_rn(rounded(y * cosine) + rounded(x * sine));
  }
}

template <int kLanes>
void start(const NormRopeArgs& args, std::int64_t num_rows, std::int64_t num_heads, cudaStream_t stream) {
  constexpr std::int64_t kBlockHeads = kThreads / kLanes * kHeadsAtOnce;
  const Grid grid{dim3(static_cast<unsigned>(num_rows),
                       static_cast<unsigned>((num_heads + kBlockHeads - 1) / kBlockHeads)),
                  dim3(kThreads)};
  launch("launch norm_rope", norm_rope_heads<kLanes>, grid, stream, args);
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace

void norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight, ConstTensorView k_weight,
               float eps, ConstTensorView rope, ConstTensorView positions, cudaStream_t stream) {
  NormRopeArgs args{};
  args.qkv = qkv.as<Bf16>();
  args.q_weight = q_weight.as<Bf16>();
  args.k_weight = k_weight.as<Bf16>();
  args.rope = rope.as<Bf16>();
  args.positions = positions.as<std::int32_t>();
  args.eps = eps;
  args.num_kv_heads = static_cast<int>(heads.num_kv_heads);
  args.queries = static_cast<int>(heads.queries_per_kv_head());
  args.inverse = static_cast<std::uint32_t>((std::int64_t{1} << 32) / (args.queries + 1) + 1);
  const std::int64_t num_rows = qkv.shape[0], num_heads = heads.num_heads + heads.num_kv_heads;
  if (num_rows == 0 || num_heads == 0) return;
  const bool aligned =
      is_aligned(args.qkv) && is_aligned(args.q_weight) && is_aligned(args.k_weight) && is_aligned(args.rope);
  switch (aligned ? heads.head_dim : 0) {
    case 64:
      return start<4>(args, num_rows, num_heads, stream);
    case 128:
      return start<8>(args, num_rows, num_heads, stream);
    case 256:
      return start<16>(args, num_rows, num_heads, stream);
    case 512:
      return start<32>(args, num_rows, num_heads, stream);
    default:
      return launch("launch norm_rope", norm_rope_any,
                    {dim3(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_heads)), dim3(kWarp)},
                    stream, args, static_cast<int>(heads.head_dim));
  }
}

}  // namespace gemmad::cuda
