// Ranks as threads of one process: a Bootstrap for tests that need several ranks but no MPI.
#pragma once

#include <functional>

#include "comm/bootstrap.h"

namespace gemmad {

/// Runs `body` once for each of `num_ranks` ranks, each on a thread of its own with a Bootstrap among them,
/// and waits for all. An exception of one rank makes the others' exchanges fail; the first is thrown again
/// here. abort() throws. Every `ranks_per_node` ranks are a node; 0: all are on one.
void run_ranks(int num_ranks, const std::function<void(Bootstrap&)>& body, int ranks_per_node = 0);

}  // namespace gemmad
