#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarpsPerBlock = 8;

struct NormRopeArgs {
  Bf16* qkv;  // [N, (H + 2K) S]
  const Bf16* q_weight;
  const Bf16* k_weight;
  const Bf16* rope;  // [P, S]
  const std::int32_t* positions;
  float eps;
  std::int64_t num_rows;
  std::int64_t num_kv_heads;
  std::int64_t queries;  // of a kv head
};

__device__ __forceinline__ float sum_over_warp(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/// One warp a head and row. Each lane holds Pack neighbours of the first half and their partners of the
/// second, so that the rotation needs no other lane. Head size = 2 * 32 * Pack.
template <int Pack>
__global__ void norm_rope_heads(NormRopeArgs args) {
  constexpr std::int64_t kHalf = kWarp * Pack;
  constexpr std::int64_t kHeadDim = 2 * kHalf;
  const std::int64_t heads_per_group = args.queries + 1;  // its key too; the value is left alone
  const std::int64_t heads_per_row = args.num_kv_heads * heads_per_group;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  wait_for_previous();
  let_next_start();
  if (index >= args.num_rows * heads_per_row) return;
  const std::int64_t row = index / heads_per_row;
  const std::int64_t group = index % heads_per_row / heads_per_group;
  const std::int64_t in_group = index % heads_per_group;
  const std::int64_t first = threadIdx.x % kWarp * Pack;

  const std::int64_t column = (group * (args.queries + 2) + in_group) * kHeadDim;
  Bf16* head = args.qkv + row * args.num_kv_heads * (args.queries + 2) * kHeadDim + column + first;
  float a[Pack];
  float b[Pack];
  load(head, a);
  load(head + kHalf, b);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Pack; ++i)
    squares += a[i] * a[i] + b[i] * b[i];
  const float factor = rsqrtf(sum_over_warp(squares) / static_cast<float>(kHeadDim) + args.eps);

  const Bf16* weight = (in_group == args.queries ? args.k_weight : args.q_weight) + first;
  float weight_a[Pack];
  float weight_b[Pack];
  load(weight, weight_a);
  load(weight + kHalf, weight_b);
  const Bf16* angles = args.rope + args.positions[row] * kHeadDim + first;
  float cosines[Pack];
  float sines[Pack];
  load(angles, cosines);
  load(angles + kHalf, sines);
#pragma unroll
  for (int i = 0; i < Pack; ++i) {
    const float x = rounded(a[i] * factor * (1.0f + weight_a[i]));
    const float y = rounded(b[i] * factor * (1.0f + weight_b[i]));
    // Both products are tensors of the model, and so rounded before they are added.
    a[i] = rounded(x * cosines[i]) - rounded(y * sines[i]);
    b[i] = rounded(y * cosines[i]) + rounded(x * sines[i]);
  }
  store(a, head);
  store(b, head + kHalf);
}

/// Any head size: a thread for each pair, one block a head and row.
__global__ void norm_rope_any(NormRopeArgs args, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t heads_per_group = args.queries + 1;
  const std::int64_t index = blockIdx.x;
  const std::int64_t row = index / (args.num_kv_heads * heads_per_group);
  const std::int64_t group = index % (args.num_kv_heads * heads_per_group) / heads_per_group;
  const std::int64_t in_group = index % heads_per_group;
  wait_for_previous();
  let_next_start();
  Bf16* head =
      args.qkv + (row * args.num_kv_heads + group) * (args.queries + 2) * head_dim + in_group * head_dim;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < head_dim; i += kWarp) {
    const float value = __bfloat162float(head[i]);
    squares += value * value;
  }
  const float factor = rsqrtf(sum_over_warp(squares) / static_cast<float>(head_dim) + args.eps);
  const Bf16* weight = in_group == args.queries ? args.k_weight : args.q_weight;
  const Bf16* angles = args.rope + args.positions[row] * head_dim;
  for (std::int64_t i = threadIdx.x; i < half; i += kWarp) {
    const float x = rounded(__bfloat162float(head[i]) * factor * (1.0f + __bfloat162float(weight[i])));
    const float y =
        rounded(__bfloat162float(head[i + half]) * factor * (1.0f + __bfloat162float(weight[i + half])));
    const float cosine = __bfloat162float(angles[i]);
    const float sine = __bfloat162float(angles[i + half]);
    head[i] = __float2bfloat16_rn(rounded(x * cosine) - rounded(y * sine));
    head[i + half] = __float2bfloat16_rn(rounded(y * cosine) + rounded(x * sine));
  }
}

}  // namespace

void norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight, ConstTensorView k_weight,
               float eps, ConstTensorView rope, ConstTensorView positions, cudaStream_t stream) {
  const NormRopeArgs args{qkv.as<Bf16>(),  q_weight.as<Bf16>(),          k_weight.as<Bf16>(),
                          rope.as<Bf16>(), positions.as<std::int32_t>(), eps,
                          qkv.shape[0],    heads.num_kv_heads,           heads.queries_per_kv_head()};
  const std::int64_t count = args.num_rows * (heads.num_heads + heads.num_kv_heads);
  if (count == 0) return;
  const Grid packed{dim3(static_cast<unsigned>((count + kWarpsPerBlock - 1) / kWarpsPerBlock)),
                    dim3(kWarp * kWarpsPerBlock)};
  switch (heads.head_dim) {
    case 64:
      return launch("launch norm_rope", norm_rope_heads<1>, packed, stream, args);
    case 128:
      return launch("launch norm_rope", norm_rope_heads<2>, packed, stream, args);
    case 256:
      return launch("launch norm_rope", norm_rope_heads<4>, packed, stream, args);
    case 512:
      return launch("launch norm_rope", norm_rope_heads<8>, packed, stream, args);
    default:
      return launch("launch norm_rope", norm_rope_any, {dim3(static_cast<unsigned>(count)), dim3(kWarp)},
                    stream, args, heads.head_dim);
  }
}

}  // namespace gemmad::cuda
