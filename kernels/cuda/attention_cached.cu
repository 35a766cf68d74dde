// Attention over what a cache keeps: by tiles (attention_tile.h) where many rows go on one sequence, by the
// kernel for one row of each (attention_decode.cu), or by the one that takes everything (attention_any.cu).
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

using namespace warpgroup;

constexpr std::int64_t kKeys = 64;  // of a block: such blocks must make up a slot
// With less rows, keys and values are rather read again for each.
constexpr std::int64_t kLeastRows = 9;
// Up to so many tiles, two thread blocks can share each, and all have a multiprocessor of their own.
constexpr std::int64_t kMostSharedTiles = 66;

template <int kHeadDim>
void start_by_size(ConstTensorView qkv, ConstTensorView keys, const Problem& problem, cudaStream_t stream) {
  const std::int64_t wide_tiles = count_tiles(problem, 128), tiles = count_tiles(problem, 64);
  if (wide_tiles >= kLeastSharedTiles)
    start<Tiling<kHeadDim, 2, 1, kKeys, true>>(qkv, keys, problem, wide_tiles >= kLeastWideTiles ? 1 : 2,
                                               stream);
  else
    start<Tiling<kHeadDim, 1, 1, kKeys, true>>(qkv, keys, problem, tiles <= kMostSharedTiles ? 2 : 1, stream);
}

void attention_chunk(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                     const AttentionParams& params, TensorView out, cudaStream_t stream) {
  Problem problem = describe_problem(qkv, params, out);
  problem.slots = rows.slots.as<int>();
  problem.positions = rows.positions.as<int>();
  problem.ends = rows.ends.as<int>();
  problem.window = static_cast<int>(std::min<std::int64_t>(params.window, std::numeric_limits<int>::max()));
  problem.capacity = static_cast<int>(cache.shape[1]);
  const ConstTensorView keys{cache.data, cache.dtype, {cache.shape[0] * cache.shape[1], cache.shape[2]}};
  switch (params.heads.head_dim) {
    case 64:
      return start_by_size<64>(qkv, keys, problem, stream);
    case 128:
      return start_by_size<128>(qkv, keys, problem, stream);
    default:
      return start_by_size<256>(qkv, keys, problem, stream);
  }
}

bool is_fast_size(std::int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

}  // namespace

void attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                      const AttentionParams& params, TensorView out, cudaStream_t stream) {
  if (qkv.shape[0] == 0) return;
  const bool fast = is_fast_size(params.heads.head_dim) && is_aligned({qkv.data, cache.data, out.data}) &&
                    cache.shape[0] * cache.shape[1] <= std::numeric_limits<int>::max();
  if (!fast) return attention_cached_any(qkv, rows, cache, params, out, stream);
  if (rows.is_chunk && qkv.shape[0] >= kLeastRows && cache.shape[1] % kKeys == 0)
    return attention_chunk(qkv, rows, cache, params, out, stream);
  attention_decode(qkv, rows, cache, params, out, stream);
}

}  // namespace gemmad::cuda
