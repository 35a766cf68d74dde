// How results get from the ranks that computed them to every place where readers look for them. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/shard_plan.h"
#include "config/daemon_config.h"

namespace gemmad {

/// Where results are to be: a place is a segment, and the ranks that can write there.
struct Places {
  std::vector<int> of_rank;     // by rank: its place
  std::vector<int> publishers;  // by place: the rank that publishes there, the first one of it

  /// Ranks of the same place as `rank`, itself included: as many readers come there for a result.
  std::int64_t ranks_beside(int rank) const;
};

/// Every rank a place of its own, or every node; `nodes`: by rank, numbered from 0 without holes.
Places make_places(Segments segments, std::span<const int> nodes);

/// How something that several ranks have computed alike gets to every place.
struct Route {
  std::vector<int> writers;    // the first holder of each place that has one: they write it there
  std::vector<int> receivers;  // publishers of all other places, which get it from writers.front()

  bool is_writer(int rank) const;
  /// The ranks that take part in its broadcast, the source first; empty when nobody receives.
  std::vector<int> members() const;
};

Route make_route(std::span<const int> holders, const Places& places);

/// The routes of all results under a plan. The same on every rank.
class RouteTable {
 public:
  RouteTable() = default;
  /// Of all hidden states, and with `single_ranks` also of what a rank that encodes has alone.
  RouteTable(const ShardPlan& plan, std::int64_t num_layers, const Places& places, bool single_ranks = false);

  const std::vector<Route>& routes() const { return routes_; }
  /// Which of them hidden state `state` (0 .. L) takes when `replica` of `cut` has computed it.
  std::size_t index(Cut cut, int replica, std::int64_t state) const;
  /// Which of them is taken by what `rank` alone has. Throws std::out_of_range where there is none.
  std::size_t of_rank(int rank) const { return by_holders_.at({rank}); }

 private:
  std::size_t add(const std::vector<int>& holders, const Places& places);

  std::vector<Route> routes_;
  std::map<std::vector<int>, std::size_t> by_holders_;
  std::map<std::pair<Cut, int>, std::vector<std::size_t>> by_state_;
};

}  // namespace gemmad
