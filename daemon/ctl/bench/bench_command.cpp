#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/ctl/bench/bench_target.h"
#include "daemon/ctl/bench/load.h"
#include "daemon/ctl/bench/report.h"
#include "daemon/ctl/commands.h"
#include "daemon/ctl/encode_fields.h"

namespace gemmad {

namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

BenchTarget ask_target(ControlClient& client, const BenchOptions& options) {
  const json info = client.call({{"op", "info"}});
  if (!info.value("ok", false)) throw ClientError("the daemon does not say what it has: " + info.dump());
  BenchTarget target = bench_target(info, options);
  if (target.num_other_ranks > 0) {
    std::fprintf(stderr,
                 "gemmactl: %zu ranks are on other hosts; what nobody reads there keeps its space until it "
                 "expires (result_ttl_ms)\n",
                 target.num_other_ranks);
  }
  return target;
}

std::vector<std::unique_ptr<BenchConnection>> connect_all(const CtlOptions& options,
                                                          const BenchTarget& target,
                                                          const PromptMaker& maker) {
  const json fields = encode_fields(options);
  std::vector<std::unique_ptr<BenchConnection>> connections;
  for (std::int64_t i = 0; i < options.bench.concurrency; ++i) {
    connections.push_back(std::make_unique<BenchConnection>(
        ControlClient::connect(options.socket, Seconds(0)), target, fields, maker));
  }
  return connections;
}

LoadEnd warm_up(Load& load, const BenchOptions& options, Tally& tally) {
  RequestBudget budget(0, std::nullopt, std::nullopt);
  return run_load(load, budget,
                  [&](BenchConnection& connection) { connection.run(budget, tally, options.warmup); }, {});
}

std::string done_text(std::int64_t done, const BenchOptions& options) {
  return std::to_string(done) + (options.requests ? " of " + std::to_string(*options.requests) : "") +
         " requests done";
}

LoadEnd measure(Load& load, const BenchOptions& options, Tally& tally) {
  std::optional<Seconds> time;
  if (options.seconds) time = Seconds(*options.seconds);
  if (!options.requests && !options.seconds) time = Seconds(BenchOptions::kDefaultSeconds);
  // Behind those of the warm-up: no prompt comes twice.
  RequestBudget budget(options.warmup * options.concurrency, options.requests, time);
  std::function<void()> progress;
  if (::isatty(STDERR_FILENO) == 1) {
    progress = [&, start = std::chrono::steady_clock::now()] {
      const Seconds elapsed = std::chrono::steady_clock::now() - start;
      std::fprintf(stderr, "\r\033[K%.0f s: %s, %lld failed", elapsed.count(),
                   done_text(tally.num_done(), options).c_str(), static_cast<long long>(tally.num_failed()));
    };
  }
  const LoadEnd end = run_load(
      load, budget, [&](BenchConnection& connection) { connection.run(budget, tally); }, progress);
  if (progress) std::fprintf(stderr, "\r\033[K");
  return end;
}

void tell_failures(const char* when, const TallyTotals& totals) {
  for (const auto& [code, failed] : totals.failures) {
    std::fprintf(stderr, "gemmactl: %s: failed with %s (%lld): %s\n", when, code.c_str(),
                 static_cast<long long>(failed.count), failed.message.c_str());
  }
}

}  // namespace

int bench_command(ControlClient& client, const CtlOptions& given) {
  CtlOptions options = given;
  if (!options.bench.seed) options.bench.seed = std::random_device()();
  const BenchTarget target = ask_target(client, options.bench);
  const PromptMaker maker(options.bench.tokens, target.vocab_size, *options.bench.seed);
  StopSignals signals;
  Load load{connect_all(options, target, maker), signals};

  Tally warm_up_tally;
  if (warm_up(load, options.bench, warm_up_tally).interrupted) {
    std::fprintf(stderr, "gemmactl: interrupted before anything was measured\n");
    return 1;
  }
  Tally tally;
  const LoadEnd end = measure(load, options.bench, tally);

  const TallyTotals totals = tally.totals();
  tell_failures("warm-up", warm_up_tally.totals());
  tell_failures("bench", totals);
  const json report = bench_report(totals, end, options, target.copying_ranks());
  std::printf("%s", options.json ? (report.dump() + "\n").c_str() : bench_table(report).c_str());
  const bool all_well = totals.num_done() > 0 && totals.num_failed() + warm_up_tally.num_failed() == 0;
  return all_well ? 0 : 1;
}

}  // namespace gemmad
