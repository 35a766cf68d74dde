// Ranks as threads of one process: a Bootstrap for tests that need several ranks but no MPI.
#pragma once

#include <functional>

#include "comm/bootstrap.h"

namespace gemmad {

/// Runs `body` once for each of `num_ranks` ranks, each on a thread of its own with a Bootstrap among them,
/// and waits for all. An exception of one rank makes the others' exchanges fail; the first is thrown again
/// here. abort() throws.
void run_ranks(int num_ranks, const std::function<void(Bootstrap&)>& body);

}  // namespace gemmad
