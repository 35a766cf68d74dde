// What a benchmark needs to know of the daemon.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "daemon/ctl/bench/bench_options.h"
#include "daemon/ctl/local_ranks.h"

namespace gemmad {

/// A rank on the daemon's host, and whether its reader copies the results.
struct BenchRank : LocalRank {
  bool copies = false;
};

struct BenchTarget {
  std::int64_t vocab_size = 0;
  std::vector<BenchRank> ranks;     // those on rank 0's node, where the control socket is
  std::size_t num_other_ranks = 0;  // on other nodes: nobody reads there

  std::vector<int> copying_ranks() const;
};

/// From the reply to `info`. Throws CtlUsageError for options that this daemon cannot serve, ClientError when
/// the reply lacks what is needed.
BenchTarget bench_target(const nlohmann::json& info, const BenchOptions& options);

}  // namespace gemmad
