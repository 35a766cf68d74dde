// That the ranks of one job were started with one set of settings.
#pragma once

#include <chrono>

#include "comm/bootstrap.h"
#include "config/daemon_config.h"

namespace gemmad {

/// Holds every rank's settings against rank 0's, but for those that may be a node's own: where files are,
/// threads, what is logged. Collective. Throws StepFailed on every rank, naming the first key that differs,
/// with both values; BootstrapError past `timeout`.
void check_same_settings(Bootstrap& bootstrap, const DaemonConfig& config, std::chrono::milliseconds timeout);

}  // namespace gemmad
