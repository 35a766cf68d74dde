// The engine loop of every rank but 0: does what rank 0 announces.
#pragma once

#include <functional>

#include "comm/bootstrap.h"
#include "daemon/batch_runner.h"

namespace gemmad {

/// Runs until rank 0 says stop. Sleeps while nothing is announced. `alive` is called now and then; what it
/// throws ends the loop. Throws BootstrapError when rank 0 is lost, CodecError when it speaks another
/// version: both fatal.
void follow(Bootstrap& bootstrap, BatchRunner& runner, const std::function<void()>& alive);

}  // namespace gemmad
