#include "daemon/ctl/local_ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/ctl/options.h"

namespace gemmad {

LocalRanks local_ranks(const nlohmann::json& info) {
  LocalRanks local;
  const nlohmann::json& ranks = info.at("ranks");
  for (const nlohmann::json& rank : ranks) {
    if (rank.at("node") != ranks.at(0).at("node")) continue;
    local.ranks.push_back({rank.at("rank").get<int>(), rank.at("reader_socket").get<std::string>()});
  }
  local.num_elsewhere = ranks.size() - local.ranks.size();
  return local;
}

const LocalRank& find_rank(const LocalRanks& local, int rank, const std::string& option) {
  const auto found = std::find_if(local.ranks.begin(), local.ranks.end(),
                                  [rank](const LocalRank& one) { return one.rank == rank; });
  if (found != local.ranks.end()) return *found;
  throw CtlUsageError(option + " " + std::to_string(rank) + ": the daemon has " +
                      std::to_string(local.ranks.size()) + " ranks on this host, and not that one");
}

}  // namespace gemmad
