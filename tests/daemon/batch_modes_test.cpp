// Batches in every mode, by some of the ranks, into segments of ranks and of nodes.
#include <atomic>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/batch_runner.h"
#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

using Bytes = std::vector<std::byte>;

const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};
const ShardSettings kTensor{Mode::kSharded, Strategy::kTensor, 0, {}};
const ShardSettings kLayer{Mode::kSharded, Strategy::kLayer, 0, {}};
const ShardSettings kAdaptive{Mode::kAdaptive, Strategy::kTensor, 0, {}};

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Runs one batch of `jobs` on `num_ranks` ranks; the first job's bytes as every rank's readers see them.
std::vector<Bytes> encode(int num_ranks, int ranks_per_node, const TestRank::Options& options,
                          const ShardSettings& settings, const std::vector<Job>& jobs) {
  std::vector<Bytes> published(at(num_ranks));
  run_ranks(
      num_ranks,
      [&](Bootstrap& bootstrap) {
        TestRank rank(bootstrap, options);
        const auto deployment = rank.deploy(settings);
        const BatchReport report = rank.runner().run({jobs, {}}, *deployment);
        require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished,
                "the job is published: " + report.jobs.at(0).failure.message);
        // Readers come when their publisher has published; others of its place do not wait for that.
        bootstrap.all_gather({}, TestRank::kTimeout);
        published[at(rank.number())] = rank.contents(report.jobs[0]);
      },
      ranks_per_node);
  return published;
}

Bytes encode_alone(const std::vector<Job>& jobs) {
  return encode(1, 0, {}, kBatchParallel, jobs).front();
}

void check_all_publish(const std::vector<Bytes>& published, const Bytes& expected) {
  CHECK(same_rows(published.front(), expected));
  for (const Bytes& other : published)
    CHECK((other == published.front()));
}

Job job_preferring(Preference preference) {
  Job job = job_of(1, some_prompts());
  job.prefer = preference;
  return job;
}

TEST_CASE("In every mode, all ranks publish what one rank alone does") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kLayer, kAdaptive,
                                 ShardSettings{Mode::kSharded, Strategy::kTensor, 2, {}},
                                 ShardSettings{Mode::kSharded, Strategy::kLayer, 2, {}});
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy), settings.ranks_per_replica);
  const std::vector<Job> jobs = {job_of(1, some_prompts())};
  check_all_publish(encode(4, 0, {}, settings, jobs), encode_alone(jobs));
}

TEST_CASE("Ranks that do not encode publish the same bytes as those that do") {
  const auto settings =
      GENERATE(as<ShardSettings>{}, ShardSettings{Mode::kBatchParallel, Strategy::kTensor, 0, {1}},
               ShardSettings{Mode::kSharded, Strategy::kTensor, 0, {0, 2}},
               ShardSettings{Mode::kSharded, Strategy::kLayer, 0, {3, 1}},
               ShardSettings{Mode::kAdaptive, Strategy::kTensor, 0, {2, 3}});
  CAPTURE(static_cast<int>(settings.mode), settings.encoder_ranks);
  const std::vector<Job> jobs = {job_of(1, some_prompts())};
  check_all_publish(encode(4, 0, {}, settings, jobs), encode_alone(jobs));
}

TEST_CASE("With a segment a node, all ranks of both nodes find the same bytes in their node's") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kLayer, kAdaptive,
                                 ShardSettings{Mode::kBatchParallel, Strategy::kTensor, 0, {1}},
                                 ShardSettings{Mode::kSharded, Strategy::kTensor, 0, {1, 3}});
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy), settings.encoder_ranks);
  TestRank::Options options;
  options.segments = Segments::kPerNode;
  const std::vector<Job> jobs = {job_of(1, some_prompts())};
  check_all_publish(encode(4, 2, options, settings, jobs), encode_alone(jobs));
}

TEST_CASE("With a segment a node, its first rank alone publishes there") {
  TestRank::Options options;
  options.segments = Segments::kPerNode;
  run_ranks(
      4,
      [&](Bootstrap& bootstrap) {
        TestRank rank(bootstrap, options);
        require((rank.store() != nullptr) == (rank.number() % 2 == 0), "the first rank has the store");
        const auto deployment = rank.deploy(kTensor);
        rank.runner().run({{job_of(1, some_prompts())}, {}}, *deployment);
        if (rank.store() == nullptr) return;
        require(std::holds_alternative<Acquired>(rank.store()->acquire(JobId{1}, 1)), "readers get the job");
      },
      2);
}

TEST_CASE("A pipeline's runs give what one rank alone gives") {
  std::vector<std::vector<std::int32_t>> prompts;
  for (int length = 1; length <= 14; ++length)
    prompts.emplace_back(at(length), 100 + length);
  Job job = job_of(1, prompts);
  job.outputs.last_hidden_state = true;
  check_all_publish(encode(3, 0, {}, kLayer, {job}), encode_alone({job}));
}

TEST_CASE("Prompts beyond one forward pass go in several, in every mode") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kLayer, kAdaptive);
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  TestRank::Options options;
  options.max_batch_tokens = 7;
  const std::vector<Job> jobs = {job_of(1, some_prompts())};
  check_all_publish(encode(2, 0, options, settings, jobs), encode_alone(jobs));
}

TEST_CASE("A job is cut as it prefers where the mode leaves the choice, and both ways give the same") {
  const auto preference = GENERATE(Preference::kDeal, Preference::kSplit);
  CAPTURE(static_cast<int>(preference));
  const std::vector<Job> jobs = {job_preferring(preference)};
  check_all_publish(encode(3, 0, {}, kAdaptive, jobs), encode_alone(jobs));
}

TEST_CASE("Jobs of one batch may be cut in different ways") {
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kAdaptive);
    Job dealt = job_preferring(Preference::kDeal);
    Job split = job_preferring(Preference::kSplit);
    split.id = 2;
    const BatchReport report = rank.runner().run({{dealt, split}, {}}, *deployment);
    require(report.jobs.at(0).cut == Cut::kDeal, "the first is dealt");
    require(report.jobs.at(1).cut == Cut::kSplit, "the second is split");
    require(same_rows(rank.contents(report.jobs[0]), rank.contents(report.jobs[1])), "both are right");
  });
}

TEST_CASE("The same job gives the same bytes every time, in every mode") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kLayer);
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(settings);
    Bytes first;
    for (JobId id = 1; id <= 3; ++id) {
      const BatchReport report = rank.runner().run({{job_of(id, some_prompts())}, {}}, *deployment);
      const Bytes bytes = rank.contents(report.jobs.at(0));
      if (id == 1) first = bytes;
      require(bytes == first, "job " + std::to_string(id) + " has the first one's bytes");
    }
  });
}

TEST_CASE("Tokens are counted where they are computed") {
  std::vector<std::uint64_t> tokens(4);
  const auto count = [&](const ShardSettings& settings) {
    run_ranks(4, [&](Bootstrap& bootstrap) {
      TestRank rank(bootstrap);
      const auto deployment = rank.deploy(settings);
      rank.runner().run({{job_of(1, some_prompts())}, {}}, *deployment);
      tokens[at(rank.number())] = rank.runner().num_tokens();
    });
    return tokens;
  };
  // Prompts of 3, 1, 6 and 2 tokens; the longest goes first.
  CHECK(count(kBatchParallel) == std::vector<std::uint64_t>{6, 3, 2, 1});
  CHECK(count({Mode::kSharded, Strategy::kTensor, 0, {1, 2}}) == std::vector<std::uint64_t>{0, 12, 12, 0});
}

TEST_CASE(
    "A forward pass that fails on some ranks fails the job on all, and the next one works, in every mode") {
  const auto settings = GENERATE(as<ShardSettings>{}, kTensor, kLayer, kAdaptive);
  CAPTURE(static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(settings);
    const BatchReport report = rank.runner().run({{job_of(1, {{2, 10, 11}, {100'000}})}, {}}, *deployment);
    require(report.jobs.at(0).failure.code == "internal", "the job failed with a code");
    const BatchReport next = rank.runner().run({{job_of(2, some_prompts())}, {}}, *deployment);
    require(next.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the next job is published");
  });
}

/// Whether a second job may have the name of the first after so many readers of it, on each of two nodes.
bool name_is_free_after(int num_reads, std::int64_t readers) {
  std::atomic<bool> is_free = false;
  TestRank::Options options;
  options.segments = Segments::kPerNode;
  run_ranks(
      4,
      [&](Bootstrap& bootstrap) {
        TestRank rank(bootstrap, options);
        const auto deployment = rank.deploy(kBatchParallel);
        Job first = job_of(1, {{2, 5}}, "x");
        first.readers = readers;
        rank.runner().run({{first}, {}}, *deployment);
        for (int read = 0; read < num_reads && rank.store() != nullptr; ++read) {
          const auto acquired = std::get<Acquired>(rank.store()->acquire(std::string("x"), 1));
          rank.store()->release(acquired.lease, 1);
        }
        const BatchReport report = rank.runner().run({{job_of(2, {{2, 6}}, "x")}, {}}, *deployment);
        if (rank.number() == 0) is_free = report.jobs.at(0).kind == JobOutcome::Kind::kPublished;
      },
      2);
  return is_free;
}

TEST_CASE("A result is kept for one reader of every rank of its place") {
  CHECK_FALSE(name_is_free_after(1, 0));
  CHECK(name_is_free_after(2, 0));
}

TEST_CASE("A result is kept for as many readers as its request tells of") {
  CHECK(name_is_free_after(1, 1));
  CHECK_FALSE(name_is_free_after(2, 3));
  CHECK(name_is_free_after(3, 3));
}

}  // namespace
}  // namespace gemmad
