#include "comm/route.h"

#include <algorithm>
#include <set>

namespace gemmad {

Places make_places(Segments segments, std::span<const int> nodes) {
  Places places;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const int place = segments == Segments::kPerRank ? static_cast<int>(rank) : nodes[rank];
    places.of_rank.push_back(place);
    if (place == static_cast<int>(places.publishers.size()))
      places.publishers.push_back(static_cast<int>(rank));
  }
  return places;
}

std::int64_t Places::ranks_beside(int rank) const {
  return std::count(of_rank.begin(), of_rank.end(), of_rank[static_cast<std::size_t>(rank)]);
}

bool Route::is_writer(int rank) const {
  return std::find(writers.begin(), writers.end(), rank) != writers.end();
}

std::vector<int> Route::members() const {
  std::vector<int> ranks;
  if (receivers.empty()) return ranks;
  ranks.push_back(writers.front());
  ranks.insert(ranks.end(), receivers.begin(), receivers.end());
  return ranks;
}

Route make_route(std::span<const int> holders, const Places& places) {
  Route route;
  std::set<int> reached;
  for (const int holder : holders) {
    if (reached.insert(places.of_rank[static_cast<std::size_t>(holder)]).second)
      route.writers.push_back(holder);
  }
  for (std::size_t place = 0; place < places.publishers.size(); ++place) {
    if (!reached.contains(static_cast<int>(place))) route.receivers.push_back(places.publishers[place]);
  }
  return route;
}

std::size_t RouteTable::add(const std::vector<int>& holders, const Places& places) {
  const auto [found, is_new] = by_holders_.try_emplace(holders, routes_.size());
  if (is_new) routes_.push_back(make_route(holders, places));
  return found->second;
}

RouteTable::RouteTable(const ShardPlan& plan, std::int64_t num_layers, const Places& places,
                       bool single_ranks) {
  for (const Cut cut : {Cut::kDeal, Cut::kSplit}) {
    const auto replicas = plan.replicas_of(cut);
    for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
      std::vector<std::size_t>& by_state = by_state_[{cut, static_cast<int>(replica)}];
      for (std::int64_t state = 0; state <= num_layers; ++state)
        by_state.push_back(add(holders_of_state(replicas[replica], state), places));
      if (!single_ranks) continue;
      for (const Shard& shard : replicas[replica].shards)
        add({shard.rank}, places);
    }
  }
}

std::size_t RouteTable::index(Cut cut, int replica, std::int64_t state) const {
  return by_state_.at({cut, replica}).at(static_cast<std::size_t>(state));
}

}  // namespace gemmad
