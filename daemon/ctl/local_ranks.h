// The ranks whose results can be read here.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gemmad {

struct LocalRank {
  int rank = 0;
  std::string reader_socket;  // several ranks have the same where they share a segment
};

struct LocalRanks {
  std::vector<LocalRank> ranks;   // those on rank 0's node, where the control socket is
  std::size_t num_elsewhere = 0;  // on other nodes: nobody reads there
};

/// From the reply to `info`. Throws nlohmann::json::exception when it lacks what is needed.
LocalRanks local_ranks(const nlohmann::json& info);

/// The one of that number. Throws CtlUsageError, naming `option` that asked for it, when it is not here.
const LocalRank& find_rank(const LocalRanks& local, int rank, const std::string& option);

}  // namespace gemmad
