// The log's threshold, from the config's words to the log's.
#pragma once

#include "config/daemon_config.h"

namespace gemmad {

/// From now on, on this rank.
void set_log_level(LogLevel level);

}  // namespace gemmad
