// How attention is cut into tiles, what a thread block holds of one in shared memory, and how that comes
// there. The query heads that share a kv head are rows of one matrix ("lines": line r G + h is row r of a
// tile, the h-th of G heads), so that each block of keys is read once for all of them. A tile is a run of
// rows whatever sequences they belong to; what each line sees is masked. So the launch depends on shapes
// alone. Keys and values are those of the rows themselves, or are in a cache: then all rows are of one
// sequence, and keys are numbered by their positions in it. For .cu files.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <climits>
#include <cstdint>

#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/hopper.h"

namespace gemmad::cuda::warpgroup {

constexpr int kPanel = 64;  // columns of a tile in shared memory that lie together
constexpr int kSlots = 5;   // blocks of keys or values on their way or in use

// How a block of threads works: warpgroups that multiply, and one warp that copies. A warpgroup has 64 lines
// and kColumns of the output; those that differ in columns alone compute the same scores, which is simpler
// than to exchange them.
template <int head_dim, int line_groups, int column_groups, int keys, bool cached = false>
struct Tiling {
  static constexpr bool kCached = cached;  // keys and values are in a cache
  static constexpr int kHeadDim = head_dim;
  static constexpr int kLineGroups = line_groups;
  static constexpr int kKeys = keys;                                      // of a block
  static constexpr int kMultiplying = 128 * line_groups * column_groups;  // threads
  // Where two warpgroups multiply, the warp that copies brings three more, to give up the registers of all.
  static constexpr bool kMoveRegisters = kMultiplying > 128;
  static constexpr int kThreads = kMultiplying + (kMoveRegisters ? 128 : 32);
  // Two warpgroups issue products alternately, so that one weighs its scores while the other's run: for
  // blocks so long that both take their time. Not with a cache, where all threads meet before values are
  // multiplied.
  static constexpr bool kAlternates = line_groups == 2 && column_groups == 1 && keys >= 128 && !cached;
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
  static_assert(kSharedBytes <= 227 * 1024, "a thread block has no more");
};

/// Where 16 bytes (columns [8 chunk, 8 chunk + 8)) of a row lie in a bf16 tile of kRows rows in shared
/// memory: panels of 64 columns one after another, in each a row of 128 bytes after the other, in each row
/// the 16-byte pieces permuted as wgmma's 128-byte swizzle has it. Tiles begin at multiples of 1024 bytes.
template <int kRows>
__device__ __forceinline__ unsigned tile_offset(unsigned row, unsigned chunk) {
  return (chunk / 8 * kRows + row) * 128 + ((chunk ^ row) % 8) * 16;
}

struct Problem {
  const int* begins;     // of packed sequences
  const int* slots;      // with a cache; below 0: a row that sees nothing
  const int* positions;  // with a cache
  const int* ends;       // null, of packed sequences: a row sees up to itself
  __nv_bfloat16* out;
  int num_rows;
  int num_heads;
  int group;       // query heads of a kv head
  int tile_heads;  // of them in a tile: G, a divisor of `group`
  int parts;       // of all heads, G each
  int tile_rows;
  unsigned inverse;  // divides lines by G: 2^16 / G, rounded up
  int window;
  float scale;   // times log2 e: weights are powers of two
  int ranks;     // thread blocks of a tile, which are a cluster: 1 or 2
  int capacity;  // positions of a slot of the cache, a multiple of a block of keys
};

// What a block of threads computes: G heads of rows from first_row, and of what they see, num_blocks blocks
// of keys from first_key.
struct Tile {
  int part;
  int query_head;            // of a row of qkv
  int key_head, value_head;  // of a row of qkv or of the cache
  int first_row;
  int first_key;
  // The last row sees from first_full, one up to end_full and none less: so every row sees what is between.
  int first_full, end_full;
  int num_blocks;
  // With a cache. Its row of position 0; what some row of the tile sees: beyond may be anything.
  int slot_row;
  int first_seen, end_seen;

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

// What a row sees: nothing where first = end.
struct Seen {
  int first, end;
};

template <typename T>
__device__ __forceinline__ Seen find_seen(const Problem& problem, int row) {
  int begin = 0, own = row;
  if constexpr (T::kCached) {
    if (problem.slots[row] < 0) return {0, 0};
    own = problem.positions[row];
  } else {
    begin = problem.begins[row];
  }
  if (problem.window > 0) begin = max(begin, own - problem.window + 1);
  return {begin, problem.ends != nullptr ? problem.ends[row] : own + 1};
}

// The ends of a tile's rows of a cache, by whole warps: they need not rise. Where some row is of no sequence,
// there is nothing that every row sees.
__device__ __forceinline__ void find_cached_ends(const Problem& problem, int last_row, Tile& tile) {
  int least = INT_MAX, most = 0;
  for (int row = tile.first_row + static_cast<int>(threadIdx.x % 32); row <= last_row; row += 32) {
    const int end = problem.slots[row] < 0 ? 0 : problem.ends[row];
    least = min(least, end);
    most = max(most, end);
  }
  tile.end_full = __reduce_min_sync(~0u, least);
  tile.end_seen = __reduce_max_sync(~0u, most);
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
  const int kv_head = tile.part / parts_of_group;
  const int first_head = kv_head * (problem.group + 2);
  tile.query_head = first_head + tile.part % parts_of_group * problem.tile_heads;
  tile.first_row = index / problem.parts * problem.tile_rows;
  const int last_row = min(tile.first_row + problem.tile_rows, problem.num_rows) - 1;
  const Seen first = find_seen<T>(problem, tile.first_row), last = find_seen<T>(problem, last_row);
  tile.first_full = last.first;
  if constexpr (T::kCached) {
    find_cached_ends(problem, last_row, tile);
    tile.key_head = kv_head;
    tile.value_head = problem.num_heads / problem.group + kv_head;
    tile.slot_row = max(problem.slots[tile.first_row], 0) * problem.capacity;
    tile.first_seen = first.first;
    tile.first_key = first.first / T::kKeys * T::kKeys;  // so no block reaches over a slot's end
  } else {
    tile.end_full = first.end;
    tile.end_seen = last.end;
    tile.key_head = first_head + problem.group;
    tile.value_head = tile.key_head + 1;
    tile.first_key = first.first;
  }
  const int blocks = (tile.end_seen - tile.first_key + T::kKeys - 1) / T::kKeys;
  const int share = (blocks + ranks - 1) / ranks;
  tile.first_key += rank * share * T::kKeys;
  tile.num_blocks = max(0, min(share, blocks - rank * share));
  return tile;
}

// This thread's lines are `line` and the eighth after it. Lines past the end see what the last row sees.
template <typename T>
__device__ Lines find_lines(const Problem& problem, const Tile& tile, int line) {
  Lines lines;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tile_row = static_cast<int>(static_cast<unsigned>(line + 8 * i) * problem.inverse >> 16);
    const Seen seen = find_seen<T>(problem, min(tile.first_row + tile_row, problem.num_rows - 1));
    lines.first_key[i] = seen.first;
    lines.num_keys[i] = static_cast<unsigned>(seen.end - seen.first);
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

// The row of the map that a key is in.
template <typename T>
__device__ __forceinline__ int row_of_key(const Problem& problem, const Tile& tile, int key) {
  if constexpr (T::kCached)
    return tile.slot_row + key % problem.capacity;
  else
    return key;
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
    hopper::copy_box(places.queries + panel * T::kQueryPanelBytes, query_map, panel * kPanel, tile.query_head,
                     tile.first_row, barrier);
    hopper::copy_box(places.block(0) + panel * T::kKeyPanelBytes, key_map, panel * kPanel, tile.key_head,
                     row_of_key<T>(problem, tile, tile.first_key), barrier);
  }
  Turn turn;
  const auto copy_block = [&](int head, int block) {
    turn.advance();
    hopper::wait(places.used(turn.slot), turn.parity ^ 1);
    const unsigned barrier = places.came(turn.slot);
    hopper::arrive_expecting(barrier, static_cast<int>(T::kBlockBytes));
    const int row = row_of_key<T>(problem, tile, tile.first_key + block * T::kKeys);
#pragma unroll 1
    for (int panel = 0; panel < T::kPanels; ++panel) {
      hopper::copy_box(places.block(turn.slot) + panel * T::kKeyPanelBytes, key_map, panel * kPanel, head,
                       row, barrier);
    }
  };
#pragma unroll 1
  for (int block = 0; block < tile.num_blocks; ++block) {
    if (block + 1 < tile.num_blocks) copy_block(tile.key_head, block + 1);
    copy_block(tile.value_head, block);
  }
}

}  // namespace gemmad::cuda::warpgroup
