// The engine loop of every rank but 0: does what rank 0 announces.
#pragma once

#include <functional>

#include "comm/bootstrap.h"
#include "daemon/engine.h"

namespace gemmad {

/// Runs until rank 0 announces the stop. `alive` is called at least once a second; what it throws ends the
/// loop. Throws BootstrapError when a rank is lost or rank 0 is silent for too long, CodecError for an
/// announcement of another build: both fatal.
void follow(Bootstrap& bootstrap, Engine& engine, const std::function<void()>& alive);

}  // namespace gemmad
