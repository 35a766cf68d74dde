#include "daemon/residency.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/agreement.h"
#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/limited_ops.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

using Bytes = std::vector<std::byte>;

const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};
const ShardSettings kTensor{Mode::kSharded, Strategy::kTensor, 0, {}};
const ShardSettings kLayer{Mode::kSharded, Strategy::kLayer, 0, {}};
const ShardSettings kAdaptive{Mode::kAdaptive, Strategy::kTensor, 0, {}};

void go_on() {}

/// One rank that holds a model, with a device of its own size.
struct ResidentRank {
  explicit ResidentRank(Bootstrap& bootstrap, WeightsCache cache = WeightsCache::kNode,
                        const ShardSettings& settings = kTensor)
      : ops(make_limited_ops(memory)),
        rank(bootstrap, {Segments::kPerRank, 256, "gemma3-tiny", ops.get()}),
        residency(rank.parts()) {
    residency.load({rank.files().checkpoint(), nullptr}, cache, settings, go_on);
  }

  /// The bytes of a job of its own, the same prompts every time.
  Bytes encode() {
    const BatchReport report =
        rank.runner().run({{job_of(next_job++, some_prompts())}, {}}, residency.deployment());
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, report.jobs.at(0).failure.message);
    return rank.contents(report.jobs[0]);
  }

  MemoryLimit memory;
  std::unique_ptr<Ops> ops;
  TestRank rank;
  Residency residency;
  JobId next_job = 1;
};

/// What `action` says when it fails; empty when it does not.
std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const StepFailed& error) {
    return error.what();
  }
  return {};
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("A switch to any mode and back gives the same results") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap);
    const Bytes first = rank.encode();
    const std::vector<ShardSettings> others = {kBatchParallel,
                                               kLayer,
                                               kAdaptive,
                                               {Mode::kSharded, Strategy::kTensor, 2, {}},
                                               {Mode::kSharded, Strategy::kLayer, 0, {1, 3}}};
    for (const ShardSettings& settings : others) {
      rank.residency.deploy(settings);
      require(rank.residency.settings() == settings, "the new mode is in effect");
      require(rank.residency.deployment().plan().settings == settings, "and deployed");
      require(same_rows(rank.encode(), first), "results stay what they were");
    }
    rank.residency.deploy(kTensor);
    require(rank.encode() == first, "the first mode gives the first bytes again");
  });
}

TEST_CASE("A switch that cannot be is refused before anything is given up") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap);
    const Bytes before = rank.encode();
    const Deployment* const deployment = &rank.residency.deployment();
    const std::string reason = failure_of([&] {
      rank.residency.deploy({Mode::kSharded, Strategy::kTensor, 3, {}});
    });
    require(mentions(reason, "ranks_per_replica is 3"), "the reason is told: " + reason);
    require(&rank.residency.deployment() == deployment, "nothing was deployed anew");
    require(rank.residency.settings() == kTensor, "the mode is the old one");
    require(rank.encode() == before, "with the old bytes");
  });
}

TEST_CASE("A switch that fails on one rank is taken back on all") {
  run_ranks(4, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap);
    const Bytes before = rank.encode();
    // Enough for a quarter of the model, not for all of it.
    const std::size_t used_bytes = rank.memory.used_bytes;
    if (bootstrap.info().rank == 2) rank.memory.most_bytes = used_bytes + used_bytes / 2;
    const std::string reason = failure_of([&] { rank.residency.deploy(kBatchParallel); });
    require(mentions(reason, "rank 2"), "the rank is named: " + reason);
    require(rank.residency.settings() == kTensor, "the mode is the old one");
    require(rank.memory.used_bytes == used_bytes, "with as much memory");
    require(rank.encode() == before, "and the old bytes");
    rank.residency.deploy(kLayer);
    require(same_rows(rank.encode(), before), "a switch that fits works afterwards");
  });
}

TEST_CASE("A switch never holds both deployments on the device") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap, WeightsCache::kNode, kBatchParallel);
    // A whole replica, which the next deployment needs as well, and no more.
    rank.memory.most_bytes = rank.memory.used_bytes;
    rank.residency.deploy(kAdaptive);
    require(rank.residency.settings() == kAdaptive, "one after the other fits");
  });
}

TEST_CASE("Sleep gives back all memory of the device, and waking gives the same bytes") {
  const auto settings = GENERATE(as<ShardSettings>{}, kTensor, kLayer, kBatchParallel);
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  run_ranks(2, [&](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap, WeightsCache::kNode, settings);
    const Bytes before = rank.encode();
    const std::size_t used_bytes = rank.memory.used_bytes;
    rank.residency.sleep();
    require(rank.residency.asleep(), "it sleeps");
    require(rank.memory.used_bytes == 0, "with nothing on the device");
    rank.residency.sleep();
    rank.residency.wake();
    require(!rank.residency.asleep(), "it is awake");
    require(rank.memory.used_bytes == used_bytes, "with what it had");
    require(rank.encode() == before, "and gives the same bytes");
    rank.residency.wake();
    require(rank.encode() == before, "waking once more changes nothing");
  });
}

TEST_CASE("A switch while asleep takes effect at waking") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap);
    const Bytes before = rank.encode();
    rank.residency.sleep();
    rank.residency.deploy(kLayer);
    require(rank.residency.asleep() && rank.memory.used_bytes == 0, "it still sleeps");
    const std::string reason = failure_of([&] { rank.residency.deploy({Mode::kBatchParallel, {}, 0, {9}}); });
    require(mentions(reason, "rank 9"), "what cannot be is refused now");
    rank.residency.wake();
    require(rank.residency.deployment().plan().settings == kLayer, "awake in the other mode");
    require(same_rows(rank.encode(), before), "with the same results");
  });
}

TEST_CASE("Ranks that cannot wake sleep on, and wake when they can") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    ResidentRank rank(bootstrap);
    const Bytes before = rank.encode();
    rank.residency.sleep();
    if (bootstrap.info().rank == 1) rank.memory.most_bytes = 1000;
    const std::string reason = failure_of([&] { rank.residency.wake(); });
    require(mentions(reason, "rank 1"), "the rank is named: " + reason);
    require(rank.residency.asleep() && rank.memory.used_bytes == 0, "all sleep on");
    rank.memory.most_bytes = ~std::size_t{0};
    rank.residency.wake();
    require(rank.encode() == before, "then they wake");
  });
}

/// Bytes that each of four ranks on two nodes has read from disk: after loading, and after a switch.
struct DiskBytes {
  std::vector<std::uint64_t> loaded = std::vector<std::uint64_t>(4);
  std::vector<std::uint64_t> switched = std::vector<std::uint64_t>(4);
  std::uint64_t model = 0;
};

DiskBytes disk_bytes(WeightsCache cache) {
  DiskBytes bytes;
  run_ranks(
      4,
      [&](Bootstrap& bootstrap) {
        ResidentRank rank(bootstrap, cache, kBatchParallel);
        const auto number = static_cast<std::size_t>(bootstrap.info().rank);
        bytes.loaded[number] = rank.residency.disk_bytes();
        rank.residency.deploy(kTensor);
        bytes.switched[number] = rank.residency.disk_bytes();
        if (number == 0) bytes.model = rank.rank.files().checkpoint()->size_bytes();
      },
      2);
  return bytes;
}

TEST_CASE(
    "With a copy of the weights, every node reads the model once, its ranks together, and never again") {
  const DiskBytes bytes = disk_bytes(WeightsCache::kNode);
  CHECK(bytes.loaded[0] + bytes.loaded[1] == bytes.model);
  CHECK(bytes.loaded[2] + bytes.loaded[3] == bytes.model);
  CHECK(bytes.loaded[0] > bytes.model / 3);
  CHECK(bytes.loaded[1] > bytes.model / 3);
  CHECK(bytes.switched == bytes.loaded);
}

TEST_CASE("Without a copy of the weights, every rank reads what it needs when it needs it") {
  const DiskBytes bytes = disk_bytes(WeightsCache::kNone);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(bytes.loaded[rank] == bytes.model);
    CHECK(bytes.switched[rank] > bytes.loaded[rank]);
    CHECK(bytes.switched[rank] < 2 * bytes.model);
  }
}

TEST_CASE("Both ways to keep weights give the same bytes") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    ResidentRank cached(bootstrap, WeightsCache::kNode);
    ResidentRank read(bootstrap, WeightsCache::kNone);
    require(cached.encode() == read.encode(), "the same bytes");
  });
}

TEST_CASE("Loading that is interrupted on one rank ends on all") {
  const auto cache = GENERATE(WeightsCache::kNode, WeightsCache::kNone);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    Residency residency(rank.parts());
    bool interrupted = false;
    try {
      residency.load({rank.files().checkpoint(), nullptr}, cache, kTensor, [&] {
        if (bootstrap.info().rank == 1) throw StepInterrupted("stopped while loading");
      });
    } catch (const StepInterrupted&) {
      interrupted = true;
    }
    require(interrupted, "every rank hears of it");
  });
}

}  // namespace
}  // namespace gemmad
