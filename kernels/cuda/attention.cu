// Attention by tiles of queries, with a running softmax over blocks of keys. The query heads that share a kv
// head are rows of one matrix ("lines": line n G + h is row n of the h-th of G heads), so that each block of
// keys is read once for all of them. A tile is a run of lines whatever sequences they belong to; what each
// row sees is masked. So the launch depends on shapes alone. The products are wgmma's: scores from shared
// memory, weights from registers; the scores of the next block are computed while the values of this one are
// added.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/wgmma.h"

namespace gemmad::cuda {
namespace {

using namespace warpgroup;

constexpr float kLog2E = 1.4426950408889634f;
// Tiles of 128 lines halve the traffic of keys and values; below so many of them (132 multiprocessors, one
// block each), twice as many of 64 lines spread the work better.
constexpr std::int64_t kLeastWideTiles = 160;

// How a block of threads works. A warpgroup has 64 lines and kColumns of the output; those that differ in
// columns alone compute the same scores, which is simpler than to exchange them.
template <int head_dim, int line_groups, int column_groups, int keys>
struct Tiling {
  static constexpr int kHeadDim = head_dim;
  static constexpr int kLineGroups = line_groups;
  static constexpr int kKeys = keys;  // of a block
  static constexpr int kThreads = 128 * line_groups * column_groups;
  static constexpr int kLines = 64 * line_groups;
  static constexpr int kColumns = head_dim / column_groups;
  static constexpr int kPartColumns = kColumns < 128 ? kColumns : 128;  // of one wgmma
  static constexpr int kParts = kColumns / kPartColumns;
  static constexpr int kChunks = head_dim / 8;          // 16-byte pieces of a row
  static constexpr int kPassRows = kThreads / kChunks;  // that the threads copy at once
  static constexpr unsigned kQueryBytes = 2 * kLines * head_dim;
  static constexpr unsigned kBlockBytes = 2 * kKeys * head_dim;
  static constexpr unsigned kSharedBytes = kQueryBytes + 4 * kBlockBytes;  // two blocks each of keys, values
};

struct Problem {
  const __nv_bfloat16* qkv;
  const int* begins;
  __nv_bfloat16* out;
  int num_rows;
  int num_kv_heads;
  int group;  // query heads of a kv head
  int window;
  float scale;  // times log2 e: weights are powers of two

  __device__ std::int64_t stride() const { return std::int64_t{num_kv_heads} * (group + 2); }  // in heads
};

// What a block of threads computes: lines [first_line, first_line + kLines) of one kv head.
struct Tile {
  int kv_head;
  int first_line;
  int first_row, last_row;
  int first_key;   // that a row of the tile sees
  int first_full;  // the last row sees from here, so every row from here to itself
  int num_blocks;  // of keys

  // Whether some row does not see all keys of a block.
  template <int kKeys>
  __device__ bool needs_mask(int block) const {
    const int key = first_key + block * kKeys;
    return key < first_full || key + kKeys - 1 > first_row;
  }
};

__device__ __forceinline__ int first_seen(const Problem& problem, int row, int begin) {
  return problem.window > 0 ? max(begin, row - problem.window + 1) : begin;
}

__device__ __forceinline__ int row_of(const Problem& problem, int line) {
  return static_cast<int>(static_cast<unsigned>(line) / static_cast<unsigned>(problem.group));
}

// The last tiles come first: in a long sequence they see the most keys.
template <typename T>
__device__ Tile find_tile(const Problem& problem) {
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  Tile tile;
  tile.kv_head = block % problem.num_kv_heads;
  tile.first_line = block / problem.num_kv_heads * T::kLines;
  tile.first_row = row_of(problem, tile.first_line);
  tile.last_row = min(row_of(problem, tile.first_line + T::kLines - 1), problem.num_rows - 1);
  return tile;
}

template <typename T>
__device__ void find_keys(const Problem& problem, Tile& tile) {
  tile.first_key = first_seen(problem, tile.first_row, problem.begins[tile.first_row]);
  tile.first_full = first_seen(problem, tile.last_row, problem.begins[tile.last_row]);
  tile.num_blocks = (tile.last_row - tile.first_key + T::kKeys) / T::kKeys;
}

// This thread's lines are `line` and the eighth after it. Lines past the end see what the last row sees.
__device__ Lines find_lines(const Problem& problem, int line) {
  Lines lines;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(row_of(problem, line + 8 * i), problem.num_rows - 1);
    lines.first_key[i] = first_seen(problem, row, problem.begins[row]);
    lines.num_keys[i] = static_cast<unsigned>(row - lines.first_key[i] + 1);
  }
  return lines;
}

template <typename T>
__device__ __forceinline__ void load_queries(const Problem& problem, const Tile& tile, unsigned shared) {
  const int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
#pragma unroll 4
  for (int done = 0; done < T::kLines; done += T::kPassRows) {
    const int line = done + static_cast<int>(threadIdx.x) / T::kChunks;
    const int row = row_of(problem, tile.first_line + line);
    const int head = tile.kv_head * (problem.group + 2) + tile.first_line + line - row * problem.group;
    const bool exists = row < problem.num_rows;
    copy_async(shared + tile_offset<T::kLines>(line, chunk),
               problem.qkv + ((exists ? row : 0) * problem.stride() + head) * T::kHeadDim + chunk * 8,
               exists);
  }
}

// One block of keys, or of values: `head` among those of a row of qkv. Rows past the tile's last become
// zeros: their weights are zeros, but may not meet a NaN.
template <typename T>
__device__ __forceinline__ void load_block(const Problem& problem, const Tile& tile, int head, int block,
                                           unsigned shared) {
  const int row = static_cast<int>(threadIdx.x) / T::kChunks,
            chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  const int first = tile.first_key + block * T::kKeys;
  const std::int64_t stride = problem.stride() * T::kHeadDim;
  const __nv_bfloat16* first_source = problem.qkv + first * stride + head * T::kHeadDim + chunk * 8;
  const __nv_bfloat16* source = first_source + row * stride;
  const unsigned offset = tile_offset<T::kKeys>(row, chunk);
  const int more_rows = tile.last_row - first - row;
#pragma unroll 4  // all at once would hold as many addresses in registers
  for (int done = 0; done < T::kKeys; done += T::kPassRows) {
    const bool exists = done <= more_rows;
    // The place of row + done: their bits do not overlap within those that the swizzle looks at.
    copy_async(shared + done * 128 + (offset ^ done % 8 * 16), exists ? source : first_source, exists);
    source += T::kPassRows * stride;
  }
}

// Starts scores = queries keys^T.
template <typename T>
__device__ __forceinline__ void start_scores(float (&scores)[T::kKeys / 2], std::uint64_t queries,
                                             std::uint64_t keys) {
#pragma unroll
  for (int step = 0; step < T::kHeadDim / 16; ++step) {
    const int panel = step / 4, piece = step % 4 * 2;
    multiply_transposed(scores, queries + panel * T::kLines * 8 + piece, keys + panel * T::kKeys * 8 + piece,
                        step > 0);
  }
  commit_products();
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
                   values + part * (T::kPartColumns / 64) * T::kKeys * 8 + step * 128);
    }
  }
  commit_products();
}

// Divides the sums by those of the weights and writes them, by way of `staging` (a tile of kLines rows) so
// that global memory is written 16 bytes a thread. Each warp uses 16 lines of it from `warp_line` and
// kColumns from `first_column`: no other reads or writes those.
template <typename T>
__device__ void write_sums(const Problem& problem, const Tile& tile,
                           float (&sums)[T::kParts][T::kPartColumns / 2], const Lines& lines,
                           std::uint8_t* staging, int warp_line, int first_column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float factor[2];
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    float sum = lines.sum[line] + __shfl_xor_sync(~0u, lines.sum[line], 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    factor[line] = 1.0f / sum;
  }
#pragma unroll
  for (int i = 0; i < T::kColumns / 4;
       ++i) {  // two columns each: of this line, of that, 8 columns further...
    const float* pair = &sums[i / (T::kPartColumns / 4)][i % (T::kPartColumns / 4) * 2];
    const unsigned offset =
        tile_offset<T::kLines>(warp_line + lane / 4 + i % 2 * 8, first_column / 8 + i / 2) + lane % 4 * 4;
    *reinterpret_cast<std::uint32_t*>(staging + offset) =
        pack(pair[0] * factor[i % 2], pair[1] * factor[i % 2]);
  }
  __syncwarp();
  constexpr int kWarpChunks = T::kColumns / 8;
#pragma unroll 4
  for (int done = 0; done < 16 * kWarpChunks; done += 32) {
    const int i = done + lane, line = warp_line + i / kWarpChunks, chunk = first_column / 8 + i % kWarpChunks;
    const int row = row_of(problem, tile.first_line + line);
    // Head by head, lines of one kv head: row (K G) + kv_head G + (line - row G).
    const std::int64_t head = std::int64_t{row} * (problem.num_kv_heads - 1) * problem.group +
                              tile.kv_head * problem.group + tile.first_line + line;
    if (row < problem.num_rows) {
      *reinterpret_cast<uint4*>(problem.out + head * T::kHeadDim + chunk * 8) =
          *reinterpret_cast<const uint4*>(staging + tile_offset<T::kLines>(line, chunk));
    }
  }
}

// Shared memory of a block: a tile of queries, and two blocks each of keys and values, used in turn.
template <typename T>
struct Places {
  unsigned queries, keys, values;

  __device__ explicit Places(unsigned begin)
      : queries(begin), keys(begin + T::kQueryBytes), values(keys + 2 * T::kBlockBytes) {}
  static __device__ unsigned of_block(int block) { return block % 2 * T::kBlockBytes; }
};

template <typename T>
__device__ __forceinline__ void load_keys(const Problem& problem, const Tile& tile, int block,
                                          const Places<T>& places) {
  const int head = tile.kv_head * (problem.group + 2) + problem.group;
  if (block < tile.num_blocks)
    load_block<T>(problem, tile, head, block, places.keys + places.of_block(block));
}

template <typename T>
__device__ __forceinline__ void load_values(const Problem& problem, const Tile& tile, int block,
                                            const Places<T>& places) {
  const int head = tile.kv_head * (problem.group + 2) + problem.group + 1;
  load_block<T>(problem, tile, head, block, places.values + places.of_block(block));
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

template <typename T>
__global__ __launch_bounds__(T::kThreads, 1) void attend(const Problem problem) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const Places<T> places(static_cast<unsigned>(__cvta_generic_to_shared(shared)));
  const int warpgroup =
      __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);  // so it is seen to be uniform
  const int line_group = warpgroup % T::kLineGroups, first_column = warpgroup / T::kLineGroups * T::kColumns;
  const int warp_line = line_group * 64 + static_cast<int>(threadIdx.x / 32 % 4) * 16;

  Tile tile = find_tile<T>(problem);
  wait_for_previous();
  load_queries<T>(problem, tile, places.queries);
  find_keys<T>(problem, tile);
  load_keys(problem, tile, 0, places);
  commit_copies();
  load_values(problem, tile, 0, places);
  load_keys(problem, tile, 1, places);
  commit_copies();
  let_next_start();

  constexpr std::uint64_t kNextBlock = T::kBlockBytes / 16;  // added to a description
  const std::uint64_t queries = describe_tile(places.queries + line_group * 64 * 128, 0);
  const std::uint64_t keys = describe_tile(places.keys, 0);
  const std::uint64_t values =
      describe_tile(places.values + first_column / 64 * T::kKeys * 128, T::kKeys * 128);
  Lines lines = find_lines(problem, tile.first_line + warp_line + static_cast<int>(threadIdx.x % 32) / 4);
  float sums[T::kParts][T::kPartColumns / 2] = {};
  float scores[T::kKeys / 2] = {};
  std::uint32_t weights[T::kKeys / 4];
  float keep[2];

  wait_copies<1>();
  __syncthreads();
  pin(scores);
  begin_products();
  start_scores<T>(scores, queries, keys);
  wait_products<0>();
  pin(scores);
  weigh<T>(problem, tile, 0, scores, lines, keep);
  pack_weights(scores, weights);

  for (int block = 0; block + 1 < tile.num_blocks; ++block) {
    // The next keys and these values have come; all threads are done with these keys and the values before.
    wait_copies<0>();
    __syncthreads();
    load_keys(problem, tile, block + 2, places);
    load_values(problem, tile, block + 1, places);
    commit_copies();

    pin(scores);
    pin(sums);
    pin(weights);
    begin_products();
    start_scores<T>(scores, queries, keys + (block + 1) % 2 * kNextBlock);
    start_sums<T>(sums, weights, values + block % 2 * kNextBlock);
    wait_products<1>();
    pin(scores);
    weigh<T>(problem, tile, block + 1, scores, lines, keep);
    wait_products<0>();
    pin(sums);
    scale_sums(sums, keep);
    pack_weights(scores, weights);
  }

  wait_copies<0>();
  __syncthreads();
  pin(sums);
  pin(weights);
  begin_products();
  start_sums<T>(sums, weights, values + (tile.num_blocks - 1) % 2 * kNextBlock);
  wait_products<0>();
  pin(sums);
  // The queries' place is free: the barrier came after the last scores.
  write_sums<T>(problem, tile, sums, lines, shared, warp_line, first_column);
}

template <typename T>
void start(const Problem& problem, cudaStream_t stream) {
  const std::int64_t num_lines = std::int64_t{problem.num_rows} * problem.group;
  const std::int64_t tiles = (num_lines + T::kLines - 1) / T::kLines * problem.num_kv_heads;
  // Per device; costs little next to a launch.
  check_cuda(cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes),
             "cudaFuncSetAttribute of attention");
  launch("launch attention", attend<T>,
         {.blocks = dim3(static_cast<unsigned>(tiles)),
          .threads = dim3(T::kThreads),
          .shared_bytes = T::kSharedBytes},
         stream, problem);
}

template <int kHeadDim>
void start_wide_or_narrow(const Problem& problem, cudaStream_t stream) {
  const std::int64_t wide_tiles =
      (std::int64_t{problem.num_rows} * problem.group + 127) / 128 * problem.num_kv_heads;
  if (wide_tiles >= kLeastWideTiles)
    start<Tiling<kHeadDim, 2, 1, 64>>(problem, stream);
  else
    start<Tiling<kHeadDim, 1, 1, 64>>(problem, stream);
}

}  // namespace

void attention(ConstTensorView qkv, ConstTensorView begins, const AttentionParams& params, TensorView out,
               cudaStream_t stream) {
  const HeadLayout& heads = params.heads;
  const std::int64_t num_rows = qkv.shape[0];
  Problem problem{};
  problem.qkv = qkv.as<__nv_bfloat16>();
  problem.begins = begins.as<int>();
  problem.out = out.as<__nv_bfloat16>();
  problem.num_rows = static_cast<int>(num_rows);
  problem.num_kv_heads = static_cast<int>(heads.num_kv_heads);
  problem.group = static_cast<int>(heads.queries_per_kv_head());
  problem.window = static_cast<int>(std::min(params.window, num_rows));  // no row sees more
  problem.scale = params.scale * kLog2E;
  void (*start_size)(const Problem&, cudaStream_t) = nullptr;
  switch (heads.head_dim) {
    case 64:
      start_size = start_wide_or_narrow<64>;
      break;
    case 128:
      start_size = start_wide_or_narrow<128>;
      break;
    case 256:
      start_size = start_wide_or_narrow<256>;
      break;
    case 512:
      start_size = start<Tiling<512, 1, 2, 32>>;
      break;
    default:
      throw OpError("attention: head_dim is " + std::to_string(heads.head_dim) +
                    ", must be 64, 128, 256 or 512");
  }
  if (num_rows > 0) start_size(problem, stream);
}

}  // namespace gemmad::cuda
