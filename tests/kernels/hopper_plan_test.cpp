#include "kernels/cuda/hopper_plan.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using cuda::HopperGemmPlan;
using cuda::HopperGemmSizes;

/// A device of 6 groups of 18 multiprocessors, one of 16 and one of 8: of these 132, clusters of 4 leave some
/// out.
int count_clusters(const HopperGemmPlan& plan) {
  const int cluster = plan.split * plan.share;
  return 6 * (18 / cluster) + 16 / cluster + 8 / cluster;
}

bool are_at_work_at_once(const HopperGemmPlan& plan, const HopperGemmSizes& sizes) {
  const auto tiles = [](std::int64_t extent, int tile) { return (extent + tile - 1) / tile; };
  return tiles(sizes.rows, plan.rows * plan.share) * tiles(sizes.tokens, plan.token_tile) <=
         count_clusters(plan);
}

constexpr HopperGemmSizes kAllSizes[] = {
    {1, 8192, 3840, false},   {16, 4096, 3840, false},  {128, 4096, 3840, false}, {128, 2048, 3840, false},
    {128, 3840, 1024, false}, {128, 3840, 512, false},  {128, 30720, 3840, true}, {128, 7680, 3840, true},
    {256, 3840, 7680, false}, {300, 3840, 7680, false}, {64, 15360, 3840, true},  {17, 128, 64, false},
};

}  // namespace

TEST_CASE("K is divided only so far that all blocks of a product are at work at once") {
  for (const HopperGemmSizes& sizes : kAllSizes) {
    CAPTURE(sizes.tokens, sizes.rows, sizes.columns);
    const HopperGemmPlan plan = cuda::choose_hopper_plan(sizes, count_clusters);
    CHECK(is_possible(plan, sizes));
    CHECK((plan.split == 1 || are_at_work_at_once(plan, sizes)));
  }
  // 32 tiles in clusters of four: 30 clusters fit, though 128 blocks are fewer than the multiprocessors.
  CHECK(cuda::choose_hopper_plan({128, 4096, 3840, false}, count_clusters).split == 2);
  CHECK(cuda::choose_hopper_plan({128, 3840, 3840, false}, count_clusters).split == 4);
}

TEST_CASE("What changes bytes of a product is the same on devices that hold other clusters") {
  const auto few_clusters = [](const HopperGemmPlan& plan) { return count_clusters(plan) * 3 / 4; };
  for (const HopperGemmSizes& sizes : kAllSizes) {
    CAPTURE(sizes.tokens, sizes.rows, sizes.columns);
    CHECK(cuda::choose_hopper_plan(sizes, few_clusters).split ==
          cuda::choose_hopper_plan(sizes, count_clusters).split);
  }
}

TEST_CASE("A plan that no kernel follows is not possible") {
  const HopperGemmSizes sizes{128, 8192, 3840, false};
  HopperGemmPlan plan = cuda::choose_hopper_plan(sizes, count_clusters);
  REQUIRE(is_possible(plan, sizes));
  const auto with = [&](int HopperGemmPlan::*member, int value) {
    HopperGemmPlan other = plan;
    other.*member = value;
    return is_possible(other, sizes);
  };
  CHECK_FALSE(with(&HopperGemmPlan::token_tile, 0));
  CHECK_FALSE(with(&HopperGemmPlan::token_tile, 48));
  CHECK_FALSE(with(&HopperGemmPlan::split, 3));
  CHECK_FALSE(with(&HopperGemmPlan::split, 16));
  CHECK_FALSE(with(&HopperGemmPlan::share, 0));
  CHECK_FALSE(with(&HopperGemmPlan::rows, 256));
  CHECK_FALSE(with(&HopperGemmPlan::held, 3));
  CHECK_FALSE(with(&HopperGemmPlan::ahead, -1));
  plan.paired = true;
  plan.split = 1;
  CHECK_FALSE(is_possible(plan, sizes));
  CHECK(is_possible(plan, {128, 8192, 3840, true}));
  CHECK_FALSE(cuda::is_possible({.token_tile = 16, .split = 2}, {16, 8192, 64, false}));
}

}  // namespace gemmad
