// One connection of a benchmark, with the readers of its results.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "daemon/ctl/bench/bench_target.h"
#include "daemon/ctl/bench/prompt_maker.h"
#include "daemon/ctl/bench/request_budget.h"
#include "daemon/ctl/bench/tally.h"
#include "daemon/ctl/control_client.h"
#include "daemon/ctl/rank_reader.h"

namespace gemmad {

/// Keeps one request in flight. run() is called from one thread at a time, hang_up() from any.
class BenchConnection {
 public:
  /// `fields` are those of every request, without the prompts; `maker` must outlive the connection. Connects
  /// its readers. Throws ClientError.
  BenchConnection(ControlClient client, const BenchTarget& target, nlohmann::json fields,
                  const PromptMaker& maker);

  /// Sends request after request until `budget` gives no more, at most `most`; counts them in `tally`. When
  /// the daemon goes away that is counted as a failure and the end, but for a budget that was stopped.
  void run(RequestBudget& budget, Tally& tally, std::optional<std::int64_t> most = {});

  /// Ends run() now; the request in flight does not count. The budget must be stopped before.
  void hang_up() noexcept { client_.hang_up(); }

 private:
  void send_one(std::int64_t number, Tally& tally);
  /// Has the readers that copy take the result, and waits: their bytes together, and their last error.
  ReadOutcome copy(std::uint64_t job);
  /// Has the other readers take and release it. Does not wait.
  void let_go(std::uint64_t job);

  ControlClient client_;
  std::vector<std::unique_ptr<RankReader>> readers_;
  nlohmann::json fields_;
  const PromptMaker& maker_;
};

}  // namespace gemmad
