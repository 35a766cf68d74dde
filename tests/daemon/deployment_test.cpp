#include "daemon/deployment.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};
const ShardSettings kTensor{Mode::kSharded, Strategy::kTensor, 0, {}};
const ShardSettings kAdaptive{Mode::kAdaptive, Strategy::kTensor, 0, {}};

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Runs `look` on every rank with a deployment by `settings`.
template <typename Look>
void on_ranks(int num_ranks, const TestRank::Options& options, const ShardSettings& settings,
              const Look& look) {
  run_ranks(num_ranks, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap, options);
    const auto deployment = rank.deploy(settings);
    look(rank, *deployment);
  });
}

Job job_of_lengths(const std::vector<std::size_t>& lengths, Preference preference = Preference::kNone) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::size_t length : lengths)
    prompts.emplace_back(length, 7);
  Job job = job_of(1, prompts);
  job.prefer = preference;
  return job;
}

/// The plans that rank 0 of `num_ranks` makes; the others must make the same.
std::vector<JobPlan> common_plans(int num_ranks, const TestRank::Options& options,
                                  const ShardSettings& settings, const std::vector<Job>& jobs) {
  std::vector<std::vector<JobPlan>> plans(at(num_ranks));
  on_ranks(num_ranks, options, settings, [&](TestRank& rank, const Deployment& deployment) {
    plans[at(rank.number())] = deployment.plan_jobs(jobs);
  });
  for (const std::vector<JobPlan>& other : plans) {
    REQUIRE(other.size() == plans[0].size());
    for (std::size_t j = 0; j < other.size(); ++j) {
      REQUIRE(other[j].cut == plans[0][j].cut);
      REQUIRE(other[j].replicas == plans[0][j].replicas);
    }
  }
  return plans[0];
}

TEST_CASE("Prompts of all jobs together are dealt to the replicas, the longest first") {
  const auto plans = common_plans(3, {}, kBatchParallel,
                                  {job_of_lengths({2, 9}), job_of_lengths({}), job_of_lengths({5, 4})});
  REQUIRE(plans.size() == 3);
  // 9 to replica 0, 5 to 1, 4 to 2, then 2 to 2.
  CHECK(plans[0].replicas == std::vector<int>{2, 0});
  CHECK(plans[1].replicas.empty());
  CHECK(plans[2].replicas == std::vector<int>{1, 2});
}

TEST_CASE("Preferences count for nothing where the mode leaves no choice") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor);
  const auto plans =
      common_plans(2, {}, settings, {job_of_lengths({3, 4}, Preference::kSplit), job_of_lengths({5})});
  CHECK(plans[0].cut == Cut::kDeal);
  CHECK(plans[1].cut == Cut::kDeal);
}

TEST_CASE("In adaptive mode a job that prefers a cut has it") {
  const auto plans =
      common_plans(2, {}, kAdaptive,
                   {job_of_lengths({3, 4}, Preference::kSplit), job_of_lengths({5, 6}, Preference::kDeal)});
  CHECK(plans[0].cut == Cut::kSplit);
  CHECK(plans[0].replicas == std::vector<int>{0, 0});
  CHECK(plans[1].cut == Cut::kDeal);
  CHECK(plans[1].replicas == std::vector<int>{1, 0});
}

TEST_CASE("In adaptive mode on one encoder everything is dealt") {
  const auto plans = common_plans(2, {}, {Mode::kAdaptive, Strategy::kTensor, 0, {1}},
                                  {job_of_lengths({3, 4}, Preference::kSplit)});
  CHECK(plans[0].cut == Cut::kDeal);
}

TEST_CASE("In adaptive mode jobs without a preference are cut as the measured costs say") {
  on_ranks(2, {}, kAdaptive, [&](TestRank&, const Deployment& deployment) {
    std::mt19937 random(4);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::size_t> lengths(1 + random() % 4);
      std::vector<std::int64_t> tokens;
      for (std::size_t& length : lengths) {
        length = 1 + random() % 1000;
        tokens.push_back(static_cast<std::int64_t>(length));
      }
      const std::vector<Job> jobs = {job_of_lengths(lengths), job_of_lengths({999}, Preference::kDeal)};
      require(deployment.plan_jobs(jobs)[0].cut == cheaper_cut(*deployment.costs(), tokens, 2),
              "the cheaper cut, by the tokens of the jobs that have no preference");
    }
  });
}

TEST_CASE("Costs are measured in adaptive mode alone, and are the same on all ranks") {
  // Also on a rank that measures nothing, and where a batch is shorter than the longest probe.
  const auto max_batch_tokens = GENERATE(std::int64_t{1024}, std::int64_t{100}, std::int64_t{5});
  CAPTURE(max_batch_tokens);
  TestRank::Options options;
  options.max_batch_tokens = max_batch_tokens;
  std::vector<CostTable> costs(3);
  on_ranks(3, options, {Mode::kAdaptive, Strategy::kTensor, 0, {0, 1}},
           [&](TestRank& rank, const Deployment& deployment) {
             require(deployment.costs().has_value(), "there are costs");
             costs[at(rank.number())] = *deployment.costs();
           });
  for (const CostTable& other : costs) {
    CHECK(other.tokens == costs[0].tokens);
    CHECK(other.whole_ms == costs[0].whole_ms);
    CHECK(other.split_ms == costs[0].split_ms);
  }
  for (std::size_t i = 0; i < CostTable::kPoints; ++i) {
    CHECK(costs[0].tokens[i] <= max_batch_tokens);
    CHECK(costs[0].whole_ms[i] > 0);
    CHECK(costs[0].split_ms[i] > 0);
  }
}

TEST_CASE("Without a choice no costs are measured") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor,
                                 ShardSettings{Mode::kAdaptive, Strategy::kTensor, 0, {1}});
  on_ranks(2, {}, settings,
           [&](TestRank&, const Deployment& deployment) { require(!deployment.costs(), "no costs"); });
}

TEST_CASE("A rank that only receives holds nothing") {
  on_ranks(3, {}, {Mode::kSharded, Strategy::kTensor, 0, {0, 2}}, [](TestRank& rank, Deployment& deployment) {
    const bool encodes = rank.number() != 1;
    require((deployment.in_hand(Cut::kDeal).part == nullptr) == !encodes, "it has no part");
    require((deployment.shard().rank == (encodes ? rank.number() : -1)), "nor a shard");
    require((deployment.weight_bytes() > 0) == encodes, "nor weights");
    require((deployment.workspace_bytes() > 0) == encodes, "nor a workspace");
    require((deployment.source_bytes() > 0) == encodes, "nor has it read any");
  });
}

TEST_CASE("A deployment holds the bytes that its shard tells") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kAdaptive);
  on_ranks(2, {}, settings, [&](TestRank& rank, const Deployment& deployment) {
    const ShardSize size = shard_size(rank.files().config(), deployment.shard());
    require(deployment.weight_bytes() == static_cast<std::uint64_t>(size.elements) * sizeof(float),
            "its weights, once");
    require(deployment.replicated_bytes() == static_cast<std::uint64_t>(size.replicated) * sizeof(float),
            "what others hold too");
  });
}

TEST_CASE("A rank has a part for each cut that it works by, dealing before splitting") {
  on_ranks(2, {}, kAdaptive, [](TestRank& rank, const Deployment& deployment) {
    const CutInHand deal = deployment.in_hand(Cut::kDeal);
    const CutInHand split = deployment.in_hand(Cut::kSplit);
    require(deal.part != nullptr && split.part != nullptr, "two parts");
    require(deal.part->replica == rank.number() && deal.replicas.size() == 2, "its replica");
    require(split.part->replica == 0 && split.replicas.size() == 1, "its slice");
    require(split.part->encoder->weights().memory.buffers == deal.part->encoder->weights().memory.buffers,
            "of the same memory");
    require(deal.delivery == nullptr && !deployment.delivers_as_computed(), "the host carries results");
  });
  on_ranks(3, {}, {Mode::kSharded, Strategy::kLayer, 0, {}}, [](TestRank&, const Deployment& deployment) {
    require(deployment.in_hand(Cut::kDeal).part != nullptr, "one part");
    require(deployment.in_hand(Cut::kSplit).part == nullptr, "and no other");
    require(deployment.in_hand(Cut::kDeal).replicas[0].shards.size() == 3, "of a pipeline of three");
  });
}

TEST_CASE("Ranks that work alone spend no time with others, those that work together do") {
  const auto time_of = [](const ShardSettings& settings) {
    std::atomic<bool> some = false;
    on_ranks(2, {}, settings, [&](TestRank& rank, Deployment& deployment) {
      rank.runner().run({{job_of(1, some_prompts())}, {}}, deployment);
      if (deployment.time_in_links().count() > 0) some = true;
    });
    return some.load();
  };
  CHECK_FALSE(time_of(kBatchParallel));
  CHECK(time_of(kTensor));
}

}  // namespace
}  // namespace gemmad
