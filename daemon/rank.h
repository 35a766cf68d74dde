// One rank's life: start with the others, serve, stop.
#pragma once

#include <functional>

#include "comm/bootstrap.h"
#include "config/daemon_config.h"
#include "daemon/signals.h"

namespace gemmad {

/// Starts this rank in step with the others, runs it until the daemon is asked to stop, and takes it down.
/// `load_settings` reads the settings anew (at SIGHUP); throws ConfigError. Collective. Throws StepFailed
/// when a rank cannot start (StepInterrupted when stopped meanwhile): nothing runs then on any rank. Any
/// other exception is fatal: the other ranks do not know yet, sockets are gone.
void run_rank(Bootstrap& bootstrap, const DaemonConfig& config,
              const std::function<DaemonConfig()>& load_settings, const CaughtSignals& signals);

}  // namespace gemmad
