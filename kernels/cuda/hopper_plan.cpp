#include "kernels/cuda/hopper_plan.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace gemmad::cuda {

namespace {

constexpr int kStepsOfSlice = 4;  // of K, at least
constexpr int kTiles[] = {16, 32, 64, 128, 192, 256};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool is_one_of(int value, std::initializer_list<int> values) {
  return std::ranges::find(values, value) != values.end();
}

/// (Tile of rows, tile of tokens) pairs.
std::int64_t count_tiles(const HopperGemmPlan& plan, const HopperGemmSizes& sizes) {
  return ceil_div(sizes.rows, plan.rows) * ceil_div(sizes.tokens, plan.token_tile);
}

/// How many times one after another the device is filled.
std::int64_t count_rounds(const HopperGemmPlan& plan, const HopperGemmSizes& sizes,
                          const HopperClusters& clusters) {
  const int at_once = clusters(plan);
  if (at_once == 0) return std::numeric_limits<std::int64_t>::max();
  return ceil_div(ceil_div(count_tiles(plan, sizes), plan.share), at_once);
}

int choose_token_tile(std::int64_t tokens) {
  for (int tile : kTiles)
    if (tokens <= tile) return tile;
  int best = 256;  // the fewest tokens that do not exist; of equal ones, the largest tile
  for (int tile : {192, 128})
    if (ceil_div(tokens, tile) * tile < ceil_div(tokens, best) * best) best = tile;
  return best;
}

/// Clusters of so many blocks that an H200 was seen to hold at once. Not asked of the device: chips of one
/// name differ in how their multiprocessors are grouped, and results must not.
int usual_clusters(int blocks) {
  switch (blocks) {
    case 2:
      return 66;
    case 4:
      return 30;
    case 8:
      return 15;
    default:
      return kHopperMultiprocessors;
  }
}

/// Whether K divides into twice as many parts as `plan` has, all of them at work at once.
bool can_split_more(const HopperGemmPlan& plan, const HopperGemmSizes& sizes) {
  const int split = 2 * plan.split;
  return split <= kLargestHopperCluster && ceil_div(sizes.columns, kHopperStep) >= kStepsOfSlice * split &&
         count_tiles(plan, sizes) <= usual_clusters(split);
}

/// Blocks of pairs as large as still give most multiprocessors one. Few tokens gain nothing from pairs.
void choose_pairs(HopperGemmPlan& plan, const HopperGemmSizes& sizes) {
  constexpr std::int64_t kMostFilled = kHopperMultiprocessors * 3 / 4;
  const std::int64_t large_tiles = ceil_div(sizes.rows, 256);
  if (sizes.tokens <= 32 || (sizes.tokens <= 64 && large_tiles < kMostFilled)) return;
  plan.paired = true;
  if (sizes.tokens <= 128 && large_tiles >= kMostFilled) plan.rows = 256;
}

/// Few tokens are a small part of what a block reads. Sharing them is worth no empty tile and no further
/// round.
void choose_share(HopperGemmPlan& plan, const HopperGemmSizes& sizes, const HopperClusters& clusters) {
  if (plan.token_tile < 64 || ceil_div(sizes.rows, plan.rows) % 2 != 0 ||
      2 * plan.split > kLargestHopperCluster)
    return;
  HopperGemmPlan sharing = plan;
  sharing.share = 2;
  if (count_rounds(sharing, sizes, clusters) <= count_rounds(plan, sizes, clusters)) plan = sharing;
}

}  // namespace

bool is_possible(const HopperGemmPlan& plan, const HopperGemmSizes& sizes) {
  if (!is_one_of(plan.split, {1, 2, 4, 8}) || !is_one_of(plan.share, {1, 2, 4, 8}) ||
      plan.split * plan.share > kLargestHopperCluster || plan.ahead < 0 || plan.ahead > 1024)
    return false;
  if (plan.split > ceil_div(sizes.columns, kHopperStep) || plan.token_tile % (8 * plan.share) != 0)
    return false;
  if (plan.paired) {
    const bool has_tile = plan.rows == 256 ? is_one_of(plan.token_tile, {64, 128})
                                           : is_one_of(plan.token_tile, {128, 192, 256});
    return sizes.geglu && plan.split == 1 && plan.held == 1 && is_one_of(plan.rows, {128, 256}) && has_tile;
  }
  if (plan.rows != 128) return false;
  return plan.held == 1 ? is_one_of(plan.token_tile, {16, 32, 64, 128, 192, 256})
                        : plan.held == 2 && is_one_of(plan.token_tile, {16, 32, 64, 128});
}

HopperGemmPlan choose_hopper_plan(const HopperGemmSizes& sizes, const HopperClusters& clusters) {
  HopperGemmPlan plan;
  plan.token_tile = choose_token_tile(sizes.tokens);
  while (can_split_more(plan, sizes))
    plan.split *= 2;
  if (sizes.geglu && plan.split == 1) choose_pairs(plan, sizes);
  choose_share(plan, sizes, clusters);
  return plan;
}

}  // namespace gemmad::cuda
