// Attention by tiles of queries (attention_tile.h), with a running softmax over blocks of keys. One warp has
// the copy engine bring the blocks; warpgroups multiply them: the scores of the next block are computed while
// the values of this one are added. Two thread blocks of a cluster can share a tile, each with half of its
// keys: then a long sequence's last tiles do not keep the others waiting.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map_encoder.h"
#include "kernels/cuda/wgmma.h"

namespace gemmad::cuda {
namespace {

using namespace warpgroup;

constexpr float kLog2E = 1.4426950408889634f;
// Tiles of 128 lines halve the traffic of keys and values, which is what limits many tokens. From so many on
// they keep all multiprocessors (132, one thread block each) busy; from so many, if two share each. Below,
// twice as many tiles of 64 lines spread the work better.
constexpr std::int64_t kLeastWideTiles = 224;
constexpr std::int64_t kLeastSharedTiles = 56;

// ---- the warpgroups that multiply ----

// Says that this warp has done with what a slot holds.
template <typename T>
__device__ __forceinline__ void release(const Places<T>& places, const Turn& turn) {
  if (threadIdx.x % 32 == 0) hopper::arrive(places.used(turn.slot));
}

// Adds to scores = queries keys^T what one panel of columns gives.
template <typename T>
__device__ __forceinline__ void start_panel(float (&scores)[T::kKeys / 2], std::uint64_t queries,
                                            std::uint64_t keys, int panel) {
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    multiply_transposed(scores, queries + panel * T::kLines * 8 + piece * 2,
                        keys + panel * T::kKeys * 8 + piece * 2, panel > 0 || piece > 0);
  }
}

// Starts sums += weights values.
template <typename T>
__device__ __forceinline__ void start_sums(float (&sums)[T::kParts][T::kPartColumns / 2],
                                           const std::uint32_t (&weights)[T::kKeys / 4],
                                           std::uint64_t values) {
#pragma unroll
  for (int step = 0; step < T::kKeys / 16; ++step) {
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      multiply_add(sums[part], weights + 4 * step,
                   values + part * (T::kPartColumns / kPanel) * T::kKeys * 8 + step * 128);
    }
  }
  commit_products();
}

// Scores of a block become weights.
template <typename T>
__device__ __forceinline__ void weigh(const Problem& problem, const Tile& tile, int block,
                                      float (&scores)[T::kKeys / 2], Lines& lines, float (&keep)[2]) {
  scale_scores(scores, problem.scale);
  if (tile.needs_mask<T::kKeys>(block)) {
    const int lane_key = static_cast<int>(threadIdx.x % 4) * 2;
    mask_scores(scores, lines, tile.first_key + block * T::kKeys + lane_key);
  }
  soften(scores, lines, keep);
}

// sums and `lines` become those of all blocks of keys of this thread block; there is one at least.
template <typename T>
__device__ __forceinline__ void add_blocks(const Problem& problem, const Tile& tile, const Places<T>& places,
                                           int warpgroup, Lines& lines,
                                           float (&sums)[T::kParts][T::kPartColumns / 2]) {
  const std::uint64_t queries =
      describe_tile(places.queries + warpgroup % T::kLineGroups * 64 * (2 * kPanel), 0);
  const std::uint64_t keys = describe_tile(places.blocks, 0);
  const std::uint64_t values =
      describe_tile(places.blocks + warpgroup / T::kLineGroups * (T::kColumns / kPanel) * T::kKeyPanelBytes,
                    T::kKeyPanelBytes);
  const auto at = [](std::uint64_t tiles, const Turn& turn) {
    return tiles + static_cast<std::uint64_t>(turn.slot) * (T::kBlockBytes / 16);
  };
  float scores[T::kKeys / 2] = {};
  std::uint32_t weights[T::kKeys / 4];
  float keep[2];
  Turn turn;

  pin(scores);
#pragma unroll
  for (int panel = 0; panel < T::kPanels; ++panel) {
    hopper::wait(places.first_panel_came(panel), 0);
    begin_products();
    start_panel<T>(scores, queries, keys, panel);
  }
  commit_products();
  wait_products<0>();
  pin(scores);
  release(places, turn);
  weigh<T>(problem, tile, 0, scores, lines, keep);
  pack_weights(scores, weights);

#pragma unroll 1
  for (int block = 1; block < tile.num_blocks; ++block) {
    turn.advance();
    const Turn of_keys = turn;
    turn.advance();
    hopper::wait(places.came(of_keys.slot), of_keys.parity);
    pin(scores);
    pin(sums);
    pin(weights);
    begin_products();
#pragma unroll
    for (int panel = 0; panel < T::kPanels; ++panel)
      start_panel<T>(scores, queries, at(keys, of_keys), panel);
    commit_products();
    hopper::wait(places.came(turn.slot), turn.parity);
    begin_products();
    start_sums<T>(sums, weights, at(values, turn));
    wait_products<1>();
    pin(scores);
    release(places, of_keys);
    weigh<T>(problem, tile, block, scores, lines, keep);
    wait_products<0>();
    pin(sums);
    release(places, turn);
    scale_sums(sums, keep);
    pack_weights(scores, weights);
  }

  turn.advance();
  hopper::wait(places.came(turn.slot), turn.parity);
  pin(sums);
  pin(weights);
  begin_products();
  start_sums<T>(sums, weights, at(values, turn));
  wait_products<0>();
  pin(sums);
}

// This thread's share of a line's sum becomes the whole.
__device__ __forceinline__ void sum_lines(Lines& lines) {
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    lines.sum[line] += __shfl_xor_sync(~0u, lines.sum[line], 1);
    lines.sum[line] += __shfl_xor_sync(~0u, lines.sum[line], 2);
  }
}

// Two thread blocks' sums of the same lines become one: each keeps a half of the columns, block 0 the first,
// and takes the other's sums of them from its shared memory, where the same thread left them.
template <int kThreads, int kCount>
__device__ __forceinline__ void join(const float* sums, Lines& lines, unsigned place, unsigned rank,
                                     float (&half)[kCount]) {
  const unsigned mine = place + threadIdx.x * 16;
  store_shared(mine, {lines.max[0], lines.max[1], lines.sum[0], lines.sum[1]});
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    half[i] = rank == 0 ? sums[i] : sums[kCount + i];
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    float4 other;
    other.x = rank == 0 ? sums[kCount + i] : sums[i];
    other.y = rank == 0 ? sums[kCount + i + 1] : sums[i + 1];
    other.z = rank == 0 ? sums[kCount + i + 2] : sums[i + 2];
    other.w = rank == 0 ? sums[kCount + i + 3] : sums[i + 3];
    store_shared(mine + (1 + i / 4) * kThreads * 16, other);
  }
  hopper::cluster_sync();
  const unsigned theirs = hopper::in_block(mine, static_cast<int>(rank ^ 1));
  const float4 state = hopper::load_from_cluster(theirs);
  float keep[2], add[2];
  join_lines(lines, state, keep, add);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 other = hopper::load_from_cluster(theirs + (1 + i / 4) * kThreads * 16);
    half[i] = half[i] * keep[0] + other.x * add[0];
    half[i + 1] = half[i + 1] * keep[0] + other.y * add[0];
    half[i + 2] = half[i + 2] * keep[1] + other.z * add[1];
    half[i + 3] = half[i + 3] * keep[1] + other.w * add[1];
  }
}

// Divides the sums by those of the weights and writes them, by way of `staging` (a tile of kLines rows) so
// that global memory is written 16 bytes a thread. Each warp uses 16 lines of it from `warp_line` and
// 2 kCount columns from `first_column`: no other reads or writes those.
template <typename T, int kCount>
__device__ __forceinline__ void write_sums(const Problem& problem, const Tile& tile, const float* sums,
                                           const Lines& lines, std::uint8_t* staging, int warp_line,
                                           int first_column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float factor[2] = {1.0f / lines.sum[0], 1.0f / lines.sum[1]};
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {  // two columns each: of this line, of that, 8 columns further...
    const unsigned offset =
        tile_offset<T::kLines>(warp_line + lane / 4 + i % 2 * 8, first_column / 8 + i / 2) + lane % 4 * 4;
    *reinterpret_cast<std::uint32_t*>(staging + offset) =
        pack(sums[2 * i] * factor[i % 2], sums[2 * i + 1] * factor[i % 2]);
  }
  __syncwarp();
  constexpr int kWarpChunks = kCount / 4;
#pragma unroll 4
  for (int done = 0; done < 16 * kWarpChunks; done += 32) {
    const int i = done + lane, line = warp_line + i / kWarpChunks, chunk = first_column / 8 + i % kWarpChunks;
    const int tile_row = static_cast<int>(static_cast<unsigned>(line) * problem.inverse >> 16);
    const int row = tile.first_row + tile_row;
    const int head = tile.part * problem.tile_heads + line - tile_row * problem.tile_heads;
    if (tile_row < problem.tile_rows && row < problem.num_rows) {
      *reinterpret_cast<uint4*>(problem.out + (std::int64_t{row} * problem.num_heads + head) * T::kHeadDim +
                                chunk * 8) =
          *reinterpret_cast<const uint4*>(staging + tile_offset<T::kLines>(line, chunk));
    }
  }
}

// What the threads that multiply do.
template <typename T>
__device__ __forceinline__ void multiply(const Problem& problem, const Tile& tile, const Places<T>& places,
                                         int warp, unsigned rank, std::uint8_t* staging) {
  const int warpgroup = warp / 4;
  const int warp_line = warpgroup % T::kLineGroups * 64 + warp % 4 * 16;
  const int first_column = warpgroup / T::kLineGroups * T::kColumns;
  Lines lines = find_lines(problem, tile, warp_line + static_cast<int>(threadIdx.x % 32) / 4);
  float sums[T::kParts][T::kPartColumns / 2] = {};
  wait_for_previous();
  if (tile.num_blocks > 0) add_blocks(problem, tile, places, warpgroup, lines, sums);
  sum_lines(lines);
  meet<T::kMultiplying>();  // nobody reads queries or blocks any more
  if (problem.ranks == 1) {
    write_sums<T, T::kColumns / 2>(problem, tile, &sums[0][0], lines, staging, warp_line, first_column);
  } else {
    float half[T::kColumns / 4];
    join<T::kMultiplying>(&sums[0][0], lines, places.blocks, rank, half);
    cluster_arrive();
    write_sums<T, T::kColumns / 4>(problem, tile, half, lines, staging, warp_line,
                                   first_column + static_cast<int>(rank) * (T::kColumns / 2));
    cluster_wait();  // the other has read what it takes from here
  }
}

template <typename T>
__global__ __launch_bounds__(T::kThreads, 1) void attend(const __grid_constant__ CUtensorMap query_map,
                                                         const __grid_constant__ CUtensorMap key_map,
                                                         const Problem problem) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const Places<T> places(hopper::shared_address(shared));
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);  // so it is seen to be uniform
  const unsigned rank = blockIdx.x % static_cast<unsigned>(problem.ranks);  // as clusters number their blocks
  let_next_start();
  if (threadIdx.x == T::kMultiplying) {
    hopper::prefetch_map(&query_map);
    hopper::prefetch_map(&key_map);
    prepare_barriers(places);
  }
  // No kernel writes the spans, the host copies them: they may be read while the kernel before this one
  // still runs.
  const Tile tile = find_tile<T>(problem, static_cast<int>(rank));
  __syncthreads();
  if (warp >= T::kMultiplying / 32) {
    if constexpr (T::kMoveRegisters) drop_registers<24>();
    wait_for_previous();
    if (threadIdx.x == T::kMultiplying && tile.num_blocks > 0)
      copy_all(problem, tile, &query_map, &key_map, places);
    if (problem.ranks > 1) {  // those that multiply meet the other block's so often
      __syncwarp();
      hopper::cluster_sync();
      hopper::cluster_sync();
    }
  } else {
    if constexpr (T::kMoveRegisters) take_registers<240>();
    multiply<T>(problem, tile, places, warp, rank, shared);
  }
}

// ---- the launch ----

// A map of rows of bf16 in three dimensions: 64 columns of a head, a head, a row. Zeros beyond.
CUtensorMap describe_boxes(ConstTensorView qkv, std::int64_t head_dim, int box_heads, int box_rows) {
  const auto size = static_cast<cuuint64_t>(head_dim), width = static_cast<cuuint64_t>(qkv.shape[1]);
  const cuuint64_t extents[] = {size, width / size, static_cast<cuuint64_t>(qkv.shape[0])};
  const cuuint64_t strides[] = {size * 2, width * 2};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(qkv.data), extents, strides, box,
      element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw CudaError(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

std::int64_t count_tiles(const Problem& problem, int lines) {
  const int rows = lines / problem.tile_heads;
  return (std::int64_t{problem.num_rows} + rows - 1) / rows * problem.parts;
}

// Each tile is computed by `ranks` thread blocks, 1 or 2.
template <typename T>
void start(ConstTensorView qkv, Problem problem, unsigned ranks, cudaStream_t stream) {
  problem.ranks = static_cast<int>(ranks);
  problem.tile_rows = T::kLines / problem.tile_heads;
  // Per device; costs little next to a launch.
  check_cuda(cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes),
             "cudaFuncSetAttribute of attention");
  launch("launch attention", attend<T>,
         {.blocks = dim3(static_cast<unsigned>(count_tiles(problem, T::kLines)) * ranks),
          .threads = dim3(T::kThreads),
          .shared_bytes = T::kSharedBytes,
          .cluster = ranks},
         stream, describe_boxes(qkv, T::kHeadDim, problem.tile_heads, problem.tile_rows),
         describe_boxes(qkv, T::kHeadDim, 1, T::kKeys), problem);
}

template <int kHeadDim>
void start_by_size(ConstTensorView qkv, const Problem& problem, cudaStream_t stream) {
  const std::int64_t wide_tiles = count_tiles(problem, 128);
  if (wide_tiles >= kLeastSharedTiles)
    start<Tiling<kHeadDim, 2, 1, 64>>(qkv, problem, wide_tiles >= kLeastWideTiles ? 1 : 2, stream);
  else
    start<Tiling<kHeadDim, 1, 1, 64>>(qkv, problem, 1, stream);
}

void start_512(ConstTensorView qkv, const Problem& problem, cudaStream_t stream) {
  start<Tiling<512, 1, 2, 32>>(qkv, problem, count_tiles(problem, 64) >= kLeastWideTiles ? 1 : 2, stream);
}

// As many heads of a group as a tile takes: all, most often.
int choose_tile_heads(int group) {
  int heads = std::min(group, 64);
  while (group % heads != 0)
    --heads;
  return heads;
}

}  // namespace

void attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
               TensorView out, cudaStream_t stream) {
  const HeadLayout& heads = params.heads;
  const std::int64_t num_rows = qkv.shape[0];
  Problem problem{};
  problem.begins = spans.begins.as<int>();
  problem.ends = spans.ends.as<int>();
  problem.out = out.as<__nv_bfloat16>();
  problem.num_rows = static_cast<int>(num_rows);
  problem.num_heads = static_cast<int>(heads.num_heads);
  problem.group = static_cast<int>(heads.queries_per_kv_head());
  problem.tile_heads = choose_tile_heads(problem.group);
  problem.parts = problem.num_heads / problem.tile_heads;
  problem.inverse = 65536 / static_cast<unsigned>(problem.tile_heads) + 1;
  problem.window = static_cast<int>(std::min(params.window, num_rows));  // no row sees more
  problem.scale = params.scale * kLog2E;
  void (*start_size)(ConstTensorView, const Problem&, cudaStream_t) = nullptr;
  switch (heads.head_dim) {
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
