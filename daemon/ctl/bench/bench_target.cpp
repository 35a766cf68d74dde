#include "daemon/ctl/bench/bench_target.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/ctl/control_client.h"
#include "daemon/ctl/options.h"

namespace gemmad {

namespace {

using nlohmann::json;

void check_tokens(const json& info, const BenchOptions& options) {
  const std::int64_t max_tokens = info.at("config").at("max_tokens").get<std::int64_t>();
  const std::int64_t longest = *std::max_element(options.tokens.begin(), options.tokens.end());
  if (longest > max_tokens) {
    throw CtlUsageError("--tokens has a prompt of " + std::to_string(longest) + "; this daemon cuts behind " +
                        std::to_string(max_tokens) + " (max_tokens)");
  }
}

bool copies(const BenchOptions& options, int rank) {
  if (options.read_by == ReadBy::kOneRank) return rank == options.read_rank;
  return options.read_by == ReadBy::kAllRanks;
}

}  // namespace

std::vector<int> BenchTarget::copying_ranks() const {
  std::vector<int> copying;
  for (const BenchRank& rank : ranks) {
    if (rank.copies) copying.push_back(rank.rank);
  }
  return copying;
}

BenchTarget bench_target(const json& info, const BenchOptions& options) {
  try {
    check_tokens(info, options);
    BenchTarget target;
    target.vocab_size = info.at("model").at("vocab_size").get<std::int64_t>();
    const LocalRanks local = local_ranks(info);
    for (const LocalRank& rank : local.ranks)
      target.ranks.push_back({rank, copies(options, rank.rank)});
    target.num_other_ranks = local.num_elsewhere;
    if (options.read_by == ReadBy::kOneRank) find_rank(local, options.read_rank, "--read");
    return target;
  } catch (const json::exception& error) {
    throw ClientError(std::string("the daemon's info is not as expected: ") + error.what());
  }
}

}  // namespace gemmad
