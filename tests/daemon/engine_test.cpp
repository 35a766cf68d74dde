#include "daemon/engine.h"

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/daemon_config.h"
#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/limited_ops.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

using Bytes = std::vector<std::byte>;

DaemonConfig config_of(Mode mode, Strategy strategy = Strategy::kTensor) {
  DaemonConfig config;
  config.model = "/models/tiny";
  config.mode = mode;
  config.strategy = strategy;
  config.log_level = LogLevel::kError;
  return config;
}

Order reconfigure(const DaemonConfig& config) {
  return {OrderKind::kReconfigure, effective_config(config).dump(), 0};
}

/// One rank with its engine, as the daemon has it.
struct EngineRank {
  explicit EngineRank(Bootstrap& bootstrap, const DaemonConfig& config = config_of(Mode::kSharded))
      : ops(make_limited_ops(memory)),
        rank(bootstrap, {Segments::kPerRank, 256, "gemma3-tiny", ops.get()}),
        residency(rank.parts()) {
    residency.load({rank.files().checkpoint(), nullptr}, WeightsCache::kNode, shard_settings(config), [] {});
    DaemonConfig timed = config;
    timed.collective_timeout_ms = TestRank::kTimeout.count();
    engine.emplace(EngineParts{bootstrap, residency, rank.runner(), rank.store(), stop_asked}, timed,
                   [this] { return identity(); });
  }

  RankIdentity identity() {
    RankIdentity identity;
    identity.shard.rank = -1;
    if (residency.asleep()) return identity;
    identity.shard = residency.deployment().shard();
    identity.weight_bytes = residency.deployment().weight_bytes();
    return identity;
  }

  Bytes encode() {
    const BatchReport report = engine->run({{job_of(next_job++, some_prompts())}, {}});
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, report.jobs.at(0).failure.message);
    return rank.contents(report.jobs[0]);
  }

  void execute(const Order& order) {
    const OrderOutcome outcome = engine->execute(order);
    require(outcome.done, "the order is carried out: " + outcome.message);
  }

  MemoryLimit memory;
  std::unique_ptr<Ops> ops;
  TestRank rank;
  Residency residency;
  std::atomic<bool> stop_asked = false;
  std::optional<Engine> engine;
  JobId next_job = 1;
};

TEST_CASE("Orders switch through all modes, and results stay what they were") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Bytes first = rank.encode();
    for (const DaemonConfig& config :
         {config_of(Mode::kBatchParallel), config_of(Mode::kAdaptive),
          config_of(Mode::kSharded, Strategy::kLayer), config_of(Mode::kSharded)}) {
      rank.execute(reconfigure(config));
      require(rank.residency.settings() == shard_settings(config), "the order's mode is in effect");
      require(same_rows(rank.encode(), first), "results stay what they were");
    }
    require(rank.encode() == first, "the first mode gives the first bytes again");
  });
}

TEST_CASE("An order that cannot be carried out changes nothing and says why") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Bytes before = rank.encode();
    DaemonConfig config = config_of(Mode::kSharded);
    config.ranks_per_replica = 3;
    config.result_ttl_ms = 100;
    const OrderOutcome outcome = rank.engine->execute(reconfigure(config));
    require(!outcome.done && outcome.code == "cannot_switch", "it is refused with a code");
    require(outcome.message.find("ranks_per_replica is 3") != std::string::npos, "and a reason");
    require(rank.residency.settings() == shard_settings(config_of(Mode::kSharded)), "the mode stays");
    require(rank.encode() == before, "and the bytes");
  });
}

TEST_CASE("Settings that cannot be read are refused on all ranks alike") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const OrderOutcome outcome =
        rank.engine->execute({OrderKind::kReconfigure, R"({"mode": "sideways"})", 0});
    require(!outcome.done && outcome.code == "cannot_switch", "refused");
    require(outcome.message.find("sideways") != std::string::npos, "by value");
  });
}

TEST_CASE("Settings that leave the layout alone deploy nothing") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Deployment* const deployment = &rank.residency.deployment();
    DaemonConfig config = config_of(Mode::kSharded);
    config.result_ttl_ms = 123'456;
    rank.execute(reconfigure(config));
    require(&rank.residency.deployment() == deployment, "the deployment is the same");
  });
}

TEST_CASE("Every rank knows what all hold, after every change") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const auto holders = [&] {
      std::vector<int> ranks;
      for (const RankIdentity& identity : rank.engine->identities())
        ranks.push_back(identity.shard.rank);
      return ranks;
    };
    require(holders() == std::vector<int>{0, 1, 2, 3}, "all hold a part at the start");
    std::uint64_t version = rank.engine->version();
    const auto changed = [&] {
      return std::exchange(version, rank.engine->version()) < rank.engine->version();
    };
    DaemonConfig config = config_of(Mode::kSharded);
    config.encoder_ranks = {1, 2};
    rank.execute(reconfigure(config));
    require(changed() && holders() == std::vector<int>{-1, 1, 2, -1}, "two hold it after the switch");
    rank.execute({OrderKind::kSleep, {}, 0});
    require(changed() && holders() == std::vector<int>{-1, -1, -1, -1}, "nobody holds it asleep");
    rank.encode();
    require(changed() && holders() == std::vector<int>{-1, 1, 2, -1}, "a batch has woken them");
    rank.encode();
    require(!changed(), "another batch changes nothing");
  });
}

TEST_CASE("Sleep and wake give the same bytes") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Bytes before = rank.encode();
    rank.execute({OrderKind::kSleep, {}, 0});
    require(rank.engine->asleep() && rank.memory.used_bytes == 0, "asleep, with nothing on the device");
    rank.execute({OrderKind::kWake, {}, 0});
    require(!rank.engine->asleep(), "awake");
    require(rank.encode() == before, "the same bytes");
  });
}

TEST_CASE("A batch wakes a sleeping daemon") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Bytes before = rank.encode();
    rank.execute({OrderKind::kSleep, {}, 0});
    require(rank.encode() == before, "the same bytes");
    require(!rank.engine->asleep(), "awake now");
  });
}

TEST_CASE("Failures alone do not wake a sleeping daemon, and reach the readers") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    rank.execute({OrderKind::kSleep, {}, 0});
    rank.engine->run({{}, {{7, "late", "deadline", "its deadline passed"}}});
    require(rank.engine->asleep(), "it sleeps on");
    require(std::holds_alternative<Failed>(rank.rank.store()->acquire(JobId{7}, 1)), "readers hear");
  });
}

TEST_CASE("A batch for ranks that cannot wake fails with a reason that readers hear, and they sleep on") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const Bytes before = rank.encode();
    rank.execute({OrderKind::kSleep, {}, 0});
    if (bootstrap.info().rank == 1) rank.memory.most_bytes = 1000;
    const Batch batch{{job_of(50, some_prompts(), "x"), job_of(51, {{2}})}, {{7, "", "deadline", ""}}};
    const BatchReport report = rank.engine->run(batch);
    require(report.jobs.size() == 2, "an outcome for each job");
    for (const JobOutcome& outcome : report.jobs) {
      require(outcome.kind == JobOutcome::Kind::kFailed && outcome.failure.code == "cannot_wake", "by code");
      require(outcome.failure.message.find("rank 1") != std::string::npos, "by rank");
    }
    for (const ResultKey& key : {ResultKey(std::string("x")), ResultKey(JobId{51}), ResultKey(JobId{7})})
      require(std::holds_alternative<Failed>(rank.rank.store()->acquire(key, 1)), "readers hear");
    require(rank.engine->asleep(), "they sleep on");
    const OrderOutcome outcome = rank.engine->execute({OrderKind::kWake, {}, 0});
    require(!outcome.done && outcome.code == "cannot_wake", "an order to wake fails alike");
    rank.memory.most_bytes = ~std::size_t{0};
    require(rank.encode() == before, "a batch wakes them when they can");
  });
}

TEST_CASE("Ranks tell each other their segments and tokens") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    rank.encode();
    const std::vector<RankStatus> all = rank.engine->exchange_status();
    require(all.size() == 3, "every rank tells");
    for (const RankStatus& status : all) {
      require(status.segment_bytes == TestRank::kSegmentBytes, "its segment");
      require(status.num_results == 1, "its result");
      require(status.tokens == 12, "all work on all tokens of a tensor group");
    }
  });
}

TEST_CASE("A rank that was asked to stop tells with its status") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    rank.stop_asked = rank.rank.number() == 2;
    const std::vector<RankStatus> all = rank.engine->exchange_status();
    for (std::size_t other = 0; other < all.size(); ++other)
      require(all[other].stop_asked == (other == 2), "that one alone");
  });
}

TEST_CASE("A new heartbeat changes how long rank 0 may be silent") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    EngineRank rank(bootstrap);
    const auto before = rank.engine->longest_silence();
    DaemonConfig config = config_of(Mode::kSharded);
    config.heartbeat_ms = 5000;
    rank.execute(reconfigure(config));
    require(rank.engine->longest_silence() == before + std::chrono::milliseconds(4000), "by as much");
  });
}

}  // namespace
}  // namespace gemmad
