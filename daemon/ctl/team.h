// Threads that work together until all are done, or a signal ends them.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "daemon/ctl/stop_signals.h"

namespace gemmad {

struct Team {
  std::vector<std::function<void()>> work;  // each on a thread of its own; must not throw
  /// Has all of them end soon. Called at most once, from the caller's thread; must not throw.
  std::function<void()> stop;
  std::function<void()> progress;  // called now and then; empty: never
  std::chrono::milliseconds progress_every{200};
};

/// Waits until all are done. A signal stops the team; the next one ends the process. Returns whether one
/// came. Throws SystemError, std::system_error when threads are lacking; none of the team's is left then.
bool run_team(const Team& team, StopSignals& signals);

}  // namespace gemmad
