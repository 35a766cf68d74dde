// How attention is cut into tiles, what a thread block holds of one in shared memory, and how that comes
// there. The query heads that share a kv head are rows of one matrix ("lines": line r G + h is row r of a
// tile, the h-th of G heads), so that each block of keys is read once for all of them. A tile is a run of
// rows whatever sequences they belong to; what each line sees is masked. So the launch depends on shapes
// alone. For .cu files.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/wgmma.h"

namespace gemmad::cuda::warpgroup {

constexpr int kPanel = 64;  // columns of a tile in shared memory that lie together
constexpr int kSlots = 5;   // blocks of keys or values on their way or in use

// How a block of threads works: warpgroups that multiply, and one warp that copies. A warpgroup has 64 lines
// and kColumns of the output; those that differ in columns alone compute the same scores, which is simpler
// than to exchange them.
template <int head_dim, int line_groups, int column_groups, int keys>
struct Tiling {
  static constexpr int kHeadDim = head_dim;
  static constexpr int kLineGroups = line_groups;
  static constexpr int kKeys = keys;                                      // of a block
  static constexpr int kMultiplying = 128 * line_groups * column_groups;  // threads
  // Where two warpgroups multiply, the warp that copies brings three more, to give up the registers of all.
  static constexpr bool kMoveRegisters = kMultiplying > 128;
  static constexpr int kThreads = kMultiplying + (kMoveRegisters ? 128 : 32);
  static constexpr int kLines = 64 * line_groups;
  static constexpr int kColumns = head_dim / column_groups;
  static constexpr int kPartColumns = kColumns < 128 ? kColumns : 128;  // of one wgmma
  static constexpr int kParts = kColumns / kPartColumns;
  static constexpr int kPanels = head_dim / kPanel;
  static constexpr unsigned kQueryPanelBytes = 2 * kLines * kPanel;
  static constexpr unsigned kKeyPanelBytes = 2 * kKeys * kPanel;
  static constexpr unsigned kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr unsigned kBlockBytes = kPanels * kKeyPanelBytes;
  static constexpr unsigned kBarrierBytes = 8 * (kPanels + 2 * kSlots);
  static constexpr unsigned kSharedBytes = kQueryBytes + kSlots * kBlockBytes + kBarrierBytes;
};

struct Problem {
  const int* begins;
  const int* ends;  // null: a row sees up to itself
  __nv_bfloat16* out;
  int num_rows;
  int num_heads;
  int group;       // query heads of a kv head
  int tile_heads;  // of them in a tile: G, a divisor of `group`
  int parts;       // of all heads, G each
  int tile_rows;
  unsigned inverse;  // divides lines by G: 2^16 / G, rounded up
  int window;
  float scale;  // times log2 e: weights are powers of two
  int ranks;    // thread blocks of a tile, which are a cluster: 1 or 2
};

// What a block of threads computes: G heads of rows from first_row, and of what they see, num_blocks blocks
// of keys from first_key.
struct Tile {
  int part;
  int query_head, key_head;  // of a row of qkv; values are behind the keys
  int first_row;
  int first_key;
  // The last row sees from first_full, the first one up to end_full: so every row sees what is between.
  int first_full, end_full;
  int num_blocks;

  // Whether some row does not see all keys of a block.
  template <int kKeys>
  __device__ bool needs_mask(int block) const {
    const int key = first_key + block * kKeys;
    return key < first_full || key + kKeys > end_full;
  }
};

// Shared memory of a block: the queries, a ring of blocks of keys and values, and barriers. Queries and the
// first keys come panel by panel, so that the first scores are begun early: each has a barrier for both.
template <typename T>
struct Places {
  unsigned queries, blocks, barriers;

  __device__ explicit Places(unsigned begin)
      : queries(begin), blocks(begin + T::kQueryBytes), barriers(blocks + kSlots * T::kBlockBytes) {}
  __device__ unsigned block(int slot) const { return blocks + static_cast<unsigned>(slot) * T::kBlockBytes; }
  __device__ unsigned first_panel_came(int panel) const { return barriers + 8 * panel; }
  __device__ unsigned came(int slot) const { return barriers + 8 * (T::kPanels + slot); }
  __device__ unsigned used(int slot) const { return barriers + 8 * (T::kPanels + kSlots + slot); }
};

// Blocks go through the ring in the order in which they are used: keys 0, keys 1, values 0, keys 2,
// values 1...
struct Turn {
  int slot = 0;
  unsigned parity = 0;  // of the slot's phase

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ int first_seen(const Problem& problem, int row, int begin) {
  return problem.window > 0 ? max(begin, row - problem.window + 1) : begin;
}

__device__ __forceinline__ int end_seen(const Problem& problem, int row) {
  return problem.ends != nullptr ? problem.ends[row] : row + 1;
}

// The last tiles come first: in a long sequence they may see the most keys. Of the blocks of keys that the
// tile sees, this is part `rank` of problem.ranks.
template <typename T>
__device__ Tile find_tile(const Problem& problem, int rank) {
  const int ranks = problem.ranks;
  const int index = static_cast<int>(gridDim.x - 1 - blockIdx.x) / ranks;
  Tile tile;
  tile.part = index % problem.parts;
  const int parts_of_group = problem.group / problem.tile_heads;
  const int first_head = tile.part / parts_of_group * (problem.group + 2);
  tile.query_head = first_head + tile.part % parts_of_group * problem.tile_heads;
  tile.key_head = first_head + problem.group;
  tile.first_row = index / problem.parts * problem.tile_rows;
  const int last_row = min(tile.first_row + problem.tile_rows, problem.num_rows) - 1;
  tile.first_key = first_seen(problem, tile.first_row, problem.begins[tile.first_row]);
  tile.first_full = first_seen(problem, last_row, problem.begins[last_row]);
  tile.end_full = end_seen(problem, tile.first_row);
  const int blocks = (end_seen(problem, last_row) - tile.first_key + T::kKeys - 1) / T::kKeys;
  const int share = (blocks + ranks - 1) / ranks;
  tile.first_key += rank * share * T::kKeys;
  tile.num_blocks = max(0, min(share, blocks - rank * share));
  return tile;
}

// This thread's lines are `line` and the eighth after it. Lines past the end see what the last row sees.
__device__ Lines find_lines(const Problem& problem, const Tile& tile, int line) {
  Lines lines;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tile_row = static_cast<int>(static_cast<unsigned>(line + 8 * i) * problem.inverse >> 16);
    const int row = min(tile.first_row + tile_row, problem.num_rows - 1);
    lines.first_key[i] = first_seen(problem, row, problem.begins[row]);
    lines.num_keys[i] = static_cast<unsigned>(end_seen(problem, row) - lines.first_key[i]);
  }
  return lines;
}

// ---- the warp that copies ----

template <typename T>
__device__ __forceinline__ void prepare_barriers(const Places<T>& places) {
  for (int panel = 0; panel < T::kPanels; ++panel)
    hopper::barrier_init(places.first_panel_came(panel), 1);
  for (int slot = 0; slot < kSlots; ++slot) {
    hopper::barrier_init(places.came(slot), 1);
    hopper::barrier_init(places.used(slot), T::kMultiplying / 32);
  }
  // In the first round the keys in slot 0 are told of by the panels' barriers: that phase of the slot's own
  // ends here, so that its phases are the rounds, as every slot's are.
  hopper::arrive(places.came(0));
  hopper::wait(places.came(0), 0);  // its next phase is begun by this thread
  hopper::publish_barriers();
}

// By one thread. Rows past the matrix become zeros. Keys and values past those that the tile sees may come
// too; their weights are zeros.
template <typename T>
__device__ void copy_all(const Problem& problem, const Tile& tile, const CUtensorMap* query_map,
                         const CUtensorMap* key_map, const Places<T>& places) {
  const int query_bytes = 2 * kPanel * problem.tile_heads * problem.tile_rows;
#pragma unroll 1
  for (int panel = 0; panel < T::kPanels; ++panel) {
    const unsigned barrier = places.first_panel_came(panel);
    hopper::arrive_expecting(barrier, query_bytes + static_cast<int>(T::kKeyPanelBytes));
    copy_box(places.queries + panel * T::kQueryPanelBytes, query_map, panel * kPanel, tile.query_head,
             tile.first_row, barrier);
    copy_box(places.block(0) + panel * T::kKeyPanelBytes, key_map, panel * kPanel, tile.key_head,
             tile.first_key, barrier);
  }
  Turn turn;
  const auto copy_block = [&](int head, int block) {
    turn.advance();
    hopper::wait(places.used(turn.slot), turn.parity ^ 1);
    const unsigned barrier = places.came(turn.slot);
    hopper::arrive_expecting(barrier, static_cast<int>(T::kBlockBytes));
#pragma unroll 1
    for (int panel = 0; panel < T::kPanels; ++panel) {
      copy_box(places.block(turn.slot) + panel * T::kKeyPanelBytes, key_map, panel * kPanel, head,
               tile.first_key + block * T::kKeys, barrier);
    }
  };
#pragma unroll 1
  for (int block = 0; block < tile.num_blocks; ++block) {
    if (block + 1 < tile.num_blocks) copy_block(tile.key_head, block + 1);
    copy_block(tile.key_head + 1, block);
  }
}

}  // namespace gemmad::cuda::warpgroup
