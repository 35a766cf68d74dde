#include "daemon/cost_model.h"

#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Tokens = std::vector<std::int64_t>;

/// A rank alone takes 1 ms a token and 4 ms; all ranks together a fifth of a ms a token and 8 ms.
CostTable table() {
  return {{10, 100, 500}, {14, 104, 504}, {10, 28, 108}};
}

TEST_CASE("Costs lie on straight lines between the points") {
  const CostTable costs = table();
  CHECK(costs.whole(10) == 14);
  CHECK(costs.whole(100) == 104);
  CHECK(costs.whole(500) == 504);
  CHECK(costs.whole(55) == 59);
  CHECK(costs.split(300) == 68);
}

TEST_CASE("Costs go on along the outermost lines") {
  const CostTable costs{{10, 20, 40}, {10, 30, 100}, {0, 0, 0}};
  CHECK(costs.whole(5) == 0);
  CHECK(costs.whole(15) == 20);
  CHECK(costs.whole(60) == 170);
}

TEST_CASE("Costs are never negative") {
  const CostTable costs{{10, 20, 40}, {10, 30, 20}, {0, 0, 0}};
  CHECK(costs.whole(0) == 0);
  CHECK(costs.whole(1000) == 0);
}

TEST_CASE("Where points fell together, costs are in proportion to the tokens") {
  const CostTable costs{{16, 16, 16}, {4, 4, 4}, {2, 2, 2}};
  CHECK(costs.whole(16) == 4);
  CHECK(costs.whole(4) == 1);
  CHECK(costs.split(160) == 20);
}

TEST_CASE("One long prompt is split, one short one is not") {
  CHECK(cheaper_cut(table(), Tokens{300}, 4) == Cut::kSplit);
  CHECK(cheaper_cut(table(), Tokens{2}, 4) == Cut::kDeal);
}

TEST_CASE("As many equal prompts as ranks are dealt") {
  CHECK(cheaper_cut(table(), Tokens(5, 100), 5) == Cut::kDeal);
  CHECK(cheaper_cut(table(), Tokens(2, 100), 5) == Cut::kSplit);
}

TEST_CASE("The slowest rank counts when prompts are dealt unevenly") {
  // Dealt: 404 ms for the one, whatever the others have. Split: 8 + 700 / 5 = 148 ms.
  CHECK(cheaper_cut(table(), Tokens{400, 100, 100, 100}, 4) == Cut::kSplit);
}

TEST_CASE("What costs the same is dealt") {
  const CostTable costs{{10, 100, 500}, {10, 100, 500}, {10, 100, 500}};
  CHECK(cheaper_cut(costs, Tokens{50}, 4) == Cut::kDeal);
}

TEST_CASE("No prompts at all have a cut too") {
  CHECK(cheaper_cut(table(), Tokens{}, 4) == Cut::kDeal);
}

TEST_CASE("Of two measurements the slower counts, point by point") {
  const CostTable a{{1, 2, 3}, {10, 20, 30}, {1, 5, 1}};
  const CostTable b{{1, 2, 3}, {11, 19, 31}, {2, 4, 2}};
  const CostTable both = slower(a, b);
  CHECK(both.tokens == a.tokens);
  CHECK(both.whole_ms == std::array<double, 3>{11, 20, 31});
  CHECK(both.split_ms == std::array<double, 3>{2, 5, 2});
}

}  // namespace
}  // namespace gemmad
