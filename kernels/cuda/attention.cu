// Attention over packed sequences: which tiles (attention_tile.h) for how many rows and which head size.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/kernels.h"

namespace gemmad::cuda {
namespace {

using namespace warpgroup;

// Products with 64 keys at a time wait for shared memory, with 128 they do not. But of short sequences, and
// of what causal rows see, longer blocks hold more keys that are masked.
constexpr std::int64_t kLeastRowsOfLongBlocks = 512;

template <int kHeadDim>
void start_by_size(ConstTensorView qkv, const Problem& problem, cudaStream_t stream) {
  const std::int64_t wide_tiles = count_tiles(problem, 128);
  if (wide_tiles < kLeastSharedTiles) return start<Tiling<kHeadDim, 1, 1, 64>>(qkv, qkv, problem, 1, stream);
  const unsigned ranks = wide_tiles >= kLeastWideTiles ? 1 : 2;
  if constexpr (kHeadDim <= 128) {  // of more, there is no room for such blocks
    if (problem.ends != nullptr && problem.num_rows >= kLeastRowsOfLongBlocks)
      return start<Tiling<kHeadDim, 2, 1, 128>>(qkv, qkv, problem, ranks, stream);
  }
  start<Tiling<kHeadDim, 2, 1, 64>>(qkv, qkv, problem, ranks, stream);
}

void start_512(ConstTensorView qkv, const Problem& problem, cudaStream_t stream) {
  start<Tiling<512, 1, 2, 32>>(qkv, qkv, problem, count_tiles(problem, 64) >= kLeastWideTiles ? 1 : 2,
                               stream);
}

}  // namespace

void attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
               TensorView out, cudaStream_t stream) {
  const std::int64_t num_rows = qkv.shape[0];
  Problem problem = describe_problem(qkv, params, out);
  problem.begins = spans.begins.as<int>();
  problem.ends = spans.ends.as<int>();
  problem.window = static_cast<int>(std::min(params.window, num_rows));  // no row sees more
  void (*start_size)(ConstTensorView, const Problem&, cudaStream_t) = nullptr;
  switch (params.heads.head_dim) {
    case 64:
      start_size = start_by_size<64>;
      break;
    case 128:
      start_size = start_by_size<128>;
      break;
    case 256:
      start_size = start_by_size<256>;
      break;
    case 512:
      start_size = start_512;
      break;
    default:
      return attention_any(qkv, spans, params, out, stream);
  }
  if (num_rows > 0) start_size(qkv, problem, stream);
}

}  // namespace gemmad::cuda
