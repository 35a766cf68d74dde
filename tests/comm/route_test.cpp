#include "comm/route.h"

#include <vector>

#include "tests/support/catch.h"
#include "tests/support/small_text_config.h"

namespace gemmad {
namespace {

using Ranks = std::vector<int>;

Places places_of(Segments segments, const Ranks& nodes) {
  return make_places(segments, nodes);
}

/// Two nodes of two ranks each.
const Ranks kTwoNodes = {0, 0, 1, 1};

RouteTable table_of(const ShardSettings& settings, const Places& places) {
  const int num_ranks = static_cast<int>(places.of_rank.size());
  return {make_shard_plan(small_text_config(8), settings, num_ranks), 8, places};
}

TEST_CASE("With a segment a rank, every rank is a place and publishes there") {
  const Places places = places_of(Segments::kPerRank, kTwoNodes);
  CHECK(places.of_rank == Ranks{0, 1, 2, 3});
  CHECK(places.publishers == Ranks{0, 1, 2, 3});
}

TEST_CASE("With a segment a node, every node is a place and its first rank publishes there") {
  const Places places = places_of(Segments::kPerNode, {0, 0, 1, 1, 1, 2});
  CHECK(places.of_rank == Ranks{0, 0, 1, 1, 1, 2});
  CHECK(places.publishers == Ranks{0, 2, 5});
}

TEST_CASE("Ranks of a node need not stand together") {
  const Places places = places_of(Segments::kPerNode, {0, 1, 0, 1});
  CHECK(places.of_rank == Ranks{0, 1, 0, 1});
  CHECK(places.publishers == Ranks{0, 1});
}

TEST_CASE("What one rank holds goes from there to the publisher of every other place") {
  const Route per_rank = make_route(Ranks{2}, places_of(Segments::kPerRank, kTwoNodes));
  CHECK(per_rank.writers == Ranks{2});
  CHECK(per_rank.receivers == Ranks{0, 1, 3});
  CHECK(per_rank.members() == Ranks{2, 0, 1, 3});

  const Route per_node = make_route(Ranks{3}, places_of(Segments::kPerNode, kTwoNodes));
  CHECK(per_node.writers == Ranks{3});
  CHECK(per_node.receivers == Ranks{0});
  CHECK(per_node.members() == Ranks{3, 0});
}

TEST_CASE("What a group holds is written by its first rank in every place") {
  const Places per_node = places_of(Segments::kPerNode, kTwoNodes);
  CHECK(make_route(Ranks{0, 1}, per_node).writers == Ranks{0});
  CHECK(make_route(Ranks{1, 2, 3}, per_node).writers == Ranks{1, 2});
  CHECK(make_route(Ranks{1, 2, 3}, per_node).receivers.empty());
  const Places per_rank = places_of(Segments::kPerRank, kTwoNodes);
  CHECK(make_route(Ranks{1, 3}, per_rank).writers == Ranks{1, 3});
  CHECK(make_route(Ranks{1, 3}, per_rank).receivers == Ranks{0, 2});
  CHECK(make_route(Ranks{1, 3}, per_rank).members() == Ranks{1, 0, 2});
}

TEST_CASE("Nobody takes part where every place has it already") {
  const Route all = make_route(Ranks{0, 1, 2, 3}, places_of(Segments::kPerRank, kTwoNodes));
  CHECK(all.receivers.empty());
  CHECK(all.members().empty());
  const Route one_node = make_route(Ranks{1}, places_of(Segments::kPerNode, {0, 0}));
  CHECK(one_node.writers == Ranks{1});
  CHECK(one_node.members().empty());
}

TEST_CASE("A writer knows itself") {
  const Route route = make_route(Ranks{1, 3}, places_of(Segments::kPerRank, kTwoNodes));
  CHECK(route.is_writer(1));
  CHECK(route.is_writer(3));
  CHECK_FALSE(route.is_writer(0));
}

TEST_CASE("Every replica that prompts are dealt to has a route, one for all hidden states") {
  const Places places = places_of(Segments::kPerRank, kTwoNodes);
  const RouteTable table = table_of({Mode::kBatchParallel, {}, 0, {}}, places);
  REQUIRE(table.routes().size() == 4);
  for (int replica = 0; replica < 4; ++replica) {
    for (std::int64_t state = 0; state <= 8; ++state) {
      const std::size_t index = table.index(Cut::kDeal, replica, state);
      CHECK(index == static_cast<std::size_t>(replica));
      CHECK(table.routes()[index].writers == Ranks{replica});
    }
  }
}

TEST_CASE("A tensor group over two nodes has a writer on each") {
  const RouteTable table =
      table_of({Mode::kSharded, Strategy::kTensor, 0, {}}, places_of(Segments::kPerNode, kTwoNodes));
  REQUIRE(table.routes().size() == 1);
  CHECK(table.routes()[0].writers == Ranks{0, 2});
  CHECK(table.routes()[0].members().empty());
  CHECK(table.index(Cut::kDeal, 0, 8) == 0);
}

TEST_CASE("Every stage of a pipeline has a route for the hidden states of its layers") {
  const RouteTable table =
      table_of({Mode::kSharded, Strategy::kLayer, 2, {}}, places_of(Segments::kPerRank, kTwoNodes));
  REQUIRE(table.routes().size() == 4);
  CHECK(table.index(Cut::kDeal, 0, 0) == 0);
  CHECK(table.index(Cut::kDeal, 0, 4) == 0);
  CHECK(table.index(Cut::kDeal, 0, 5) == 1);
  CHECK(table.index(Cut::kDeal, 0, 8) == 1);
  CHECK(table.index(Cut::kDeal, 1, 4) == 2);
  CHECK(table.index(Cut::kDeal, 1, 5) == 3);
  CHECK(table.routes()[3].writers == Ranks{3});
  CHECK(table.routes()[3].receivers == Ranks{0, 1, 2});
}

TEST_CASE("Adaptive has routes for both cuts") {
  const RouteTable table =
      table_of({Mode::kAdaptive, {}, 0, {0, 1}}, places_of(Segments::kPerRank, {0, 0, 0}));
  REQUIRE(table.routes().size() == 3);
  CHECK(table.routes()[table.index(Cut::kDeal, 1, 3)].writers == Ranks{1});
  const Route& split = table.routes()[table.index(Cut::kSplit, 0, 3)];
  CHECK(split.writers == Ranks{0, 1});
  CHECK(split.receivers == Ranks{2});
}

TEST_CASE("Every route reaches every place exactly once") {
  const auto segments = GENERATE(Segments::kPerRank, Segments::kPerNode);
  const auto settings = GENERATE(ShardSettings{Mode::kBatchParallel, Strategy::kTensor, 0, {}},
                                 ShardSettings{Mode::kBatchParallel, Strategy::kTensor, 0, {1, 4}},
                                 ShardSettings{Mode::kSharded, Strategy::kTensor, 3, {}},
                                 ShardSettings{Mode::kSharded, Strategy::kLayer, 0, {}},
                                 ShardSettings{Mode::kSharded, Strategy::kLayer, 2, {0, 2, 3, 5}},
                                 ShardSettings{Mode::kAdaptive, Strategy::kTensor, 0, {2, 3, 4}});
  const Places places = places_of(segments, {0, 0, 1, 1, 2, 2});
  const RouteTable table = table_of(settings, places);
  for (const Route& route : table.routes()) {
    std::vector<int> reached(places.publishers.size(), 0);
    for (const Ranks* ranks : {&route.writers, &route.receivers}) {
      for (const int rank : *ranks)
        ++reached.at(static_cast<std::size_t>(places.of_rank.at(static_cast<std::size_t>(rank))));
    }
    CHECK(reached == std::vector<int>(places.publishers.size(), 1));
  }
}

TEST_CASE("What one rank of a replica has alone has a route of its own where that is wanted") {
  const Places places = places_of(Segments::kPerRank, {0, 0});
  const ShardPlan plan = make_shard_plan(small_text_config(8), {Mode::kSharded, Strategy::kTensor, 0, {}}, 2);
  const RouteTable table(plan, 8, places, true);
  CHECK(table.routes()[table.of_rank(0)].members() == Ranks{0, 1});
  CHECK(table.routes()[table.of_rank(1)].members() == Ranks{1, 0});
  CHECK(table.index(Cut::kDeal, 0, 8) != table.of_rank(0));
  CHECK_THROWS_AS(RouteTable(plan, 8, places).of_rank(0), std::out_of_range);
}

TEST_CASE("What a replica of one rank computes takes that rank's route") {
  const Places places = places_of(Segments::kPerRank, {0, 0});
  const ShardPlan plan = make_shard_plan(small_text_config(8), {Mode::kBatchParallel, {}, 0, {}}, 2);
  const RouteTable table(plan, 8, places, true);
  CHECK(table.routes().size() == 2);
  CHECK(table.index(Cut::kDeal, 1, 3) == table.of_rank(1));
}

}  // namespace
}  // namespace gemmad
