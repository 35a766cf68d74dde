// How hopper_gemm.h's products are cut into work of thread blocks. Pure arithmetic.
#pragma once

#include <cstdint>
#include <functional>

namespace gemmad::cuda {

/// A block makes `rows` rows of the weights (columns of the product) for `token_tile` tokens. Only `split`
/// can change bytes of the result.
struct HopperGemmPlan {
  int token_tile = 0;   // 16, 32, 64, 128, 192 or 256; 16 to 128 when held is 2
  int split = 1;        // blocks of a cluster that divide K among them: 1, 2, 4 or 8
  int share = 1;        // blocks of a cluster that fetch the same tokens only once: 1, 2, 4 or 8
  int rows = 128;       // or 256, when paired and with 64 or 128 tokens
  int held = 1;         // blocks that fit a multiprocessor at once, with smaller rings: 1 or 2
  int ahead = 0;        // steps of K beyond the ring whose weights are asked into L2 at the very beginning
  bool paired = false;  // GeGLU without exchange among threads: 128, 192 or 256 (with 256 rows: 64 or 128)
                        // tokens, split and held 1; follows only where `out` is 16-byte aligned
  bool whole = false;   // no halves of tiles in the last round (paired, 256 tokens, share 2)
};

/// Of x [tokens, columns] and w [rows, columns], gates and their ups for a GeGLU.
struct HopperGemmSizes {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool geglu = false;
};

/// Columns of K that a block takes at a time.
constexpr int kHopperStep = 64;
/// An H100's or H200's multiprocessors.
constexpr int kHopperMultiprocessors = 132;
/// Blocks of a cluster, split * share, that every device has.
constexpr int kLargestHopperCluster = 8;

/// Whether the kernels can follow `plan` for these sizes.
bool is_possible(const HopperGemmPlan& plan, const HopperGemmSizes& sizes);

/// How many clusters of a plan's blocks the device holds at once; 0: it has none that large. Multiprocessors
/// come in groups that clusters do not cross, so this is less than the blocks alone would make.
using HopperClusters = std::function<int(const HopperGemmPlan& plan)>;

/// K is divided only as far as all blocks are at work at once. `share`, which changes no byte of the result,
/// follows from what clusters the device holds, the rest from the sizes alone.
HopperGemmPlan choose_hopper_plan(const HopperGemmSizes& sizes, const HopperClusters& clusters);

}  // namespace gemmad::cuda
