// Puts load on the daemon: all connections of a benchmark at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/ctl/bench/connection.h"
#include "daemon/ctl/bench/request_budget.h"
#include "daemon/ctl/bench/tally.h"
#include "daemon/ctl/stop_signals.h"

namespace gemmad {

struct Load {
  std::vector<std::unique_ptr<BenchConnection>> connections;
  StopSignals& signals;
};

struct LoadEnd {
  std::chrono::duration<double> wall{};
  bool interrupted = false;
};

/// Has every connection do `work` on a thread of its own and waits for all. A signal stops `budget` and hangs
/// the connections up: they are of no use then. `progress` is called now and then; empty: never. Throws
/// SystemError, std::system_error when threads are lacking.
LoadEnd run_load(Load& load, RequestBudget& budget, const std::function<void(BenchConnection&)>& work,
                 const std::function<void()>& progress);

}  // namespace gemmad
