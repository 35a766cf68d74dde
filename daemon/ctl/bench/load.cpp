#include "daemon/ctl/bench/load.h"

#include "daemon/ctl/team.h"

namespace gemmad {

LoadEnd run_load(Load& load, RequestBudget& budget, const std::function<void(BenchConnection&)>& work,
                 const std::function<void()>& progress) {
  using Clock = std::chrono::steady_clock;
  Team team;
  for (const auto& connection : load.connections)
    team.work.push_back([&work, one = connection.get()] { work(*one); });
  team.stop = [&] {
    budget.stop();
    for (const auto& connection : load.connections)
      connection->hang_up();
  };
  team.progress = progress;
  LoadEnd end;
  const auto start = Clock::now();
  end.interrupted = run_team(team, load.signals);
  end.wall = Clock::now() - start;
  return end;
}

}  // namespace gemmad
