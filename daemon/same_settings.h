// That the ranks of one job were started with one set of settings.
#pragma once

#include <chrono>

#include "comm/bootstrap.h"
#include "config/daemon_config.h"

namespace gemmad {

/// Holds every rank's settings against rank 0's, but for those that may be a node's own: threads, what is
/// logged, the socket, and of files whether there are any, not where. Collective. Throws StepFailed on every
/// rank, naming the first key that differs, with both values; BootstrapError past `timeout`.
void check_same_settings(Bootstrap& bootstrap, const DaemonConfig& config, std::chrono::milliseconds timeout);

}  // namespace gemmad
