#include "daemon/ctl/local_ranks.h"

#include <nlohmann/json.hpp>

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

}  // namespace gemmad
