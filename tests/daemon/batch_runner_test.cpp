#include "daemon/batch_runner.h"

#include <memory>
#include <variant>
#include <vector>

#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};

TEST_CASE("every rank publishes the same bytes, whoever computed them") {
  std::vector<std::vector<std::byte>> published(3);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    const BatchReport report = rank.runner().run({{job_of(1, some_prompts())}, {}}, *deployment);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the job is published");
    published[static_cast<std::size_t>(bootstrap.info().rank)] = rank.contents(report.jobs[0]);
  });
  CHECK(published[0].size() == 12 * 2 * 96 * 4);
  CHECK(published[0] == published[1]);
  CHECK(published[0] == published[2]);
}

TEST_CASE("a job without prompts is published empty") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    const BatchReport report = rank.runner().run({{job_of(1, {})}, {}}, *deployment);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the job is published");
    require(std::holds_alternative<Acquired>(rank.store()->acquire(JobId{1}, 1)), "its readers get it");
  });
}

TEST_CASE("prompts beyond one forward pass go in several") {
  run_ranks(1, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    const std::vector<std::vector<std::int32_t>> prompts(3, std::vector<std::int32_t>(600, 7));
    const BatchReport report = rank.runner().run({{job_of(1, prompts)}, {}}, *deployment);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kFailed, "1.4 MB do not fit 1 MiB");
    require(report.jobs[0].failure.code == "result_too_large", "and it says so");
    Job narrow = job_of(2, prompts);
    narrow.outputs.hidden_states = {8};
    const BatchReport second = rank.runner().run({{narrow}, {}}, *deployment);
    require(second.jobs.at(0).kind == JobOutcome::Kind::kPublished, "one layer of it fits");
    const auto& tensors = second.jobs[0].prompts;
    require(rank.bytes_of(tensors[0].tensors[0]) == rank.bytes_of(tensors[2].tensors[0]),
            "equal prompts, equal bytes");
  });
}

TEST_CASE("a forward pass that fails on one rank fails the job on all, and the next one works") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    // Longest first: the good prompt is rank 0's, the one with an id out of range rank 1's.
    const BatchReport report =
        rank.runner().run({{job_of(1, {{2, 10, 11}, {100'000}}, "x")}, {}}, *deployment);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kFailed, "it failed");
    require(report.jobs[0].failure.code == "internal", "with a code");
    require(report.jobs[0].failure.message.find("rank 1") != std::string::npos, "that names the rank");
    require(std::holds_alternative<Failed>(rank.store()->acquire(std::string("x"), 1)), "readers hear of it");
    require(rank.store()->stats().used_bytes == 0, "its space is free again");
    const BatchReport next = rank.runner().run({{job_of(2, some_prompts(), "x")}, {}}, *deployment);
    require(next.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the next job is published");
  });
}

TEST_CASE("a rank without space makes all of them wait, and the jobs behind") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    const JobId filler = 100;
    if (bootstrap.info().rank == 1) {
      require(
          rank.store()->reserve(filler, "", TestRank::kSegmentBytes - 16 * 4096) == ReserveVerdict::kReserved,
          "the filler fits");
    }
    const std::vector<std::vector<std::int32_t>> large(2, std::vector<std::int32_t>(100, 7));
    const Batch batch{{job_of(1, large), job_of(2, {{2}})}, {}};
    const BatchReport report = rank.runner().run(batch, *deployment);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kNoSpace, "the large job waits on both ranks");
    require(report.jobs.at(1).kind == JobOutcome::Kind::kNoSpace, "the small one does not overtake it");
    require(report.jobs[0].failure.code == "buffers_exhausted", "it knows what it would fail with");
    if (bootstrap.info().rank == 1) rank.store()->release_reservation(filler);
    const BatchReport again = rank.runner().run(batch, *deployment);
    require(again.jobs.at(0).kind == JobOutcome::Kind::kPublished, "with space the large job runs");
    require(again.jobs.at(1).kind == JobOutcome::Kind::kPublished, "and the small one");
  });
}

TEST_CASE("a name in use on one rank is refused on all and its result stays") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    rank.runner().run({{job_of(1, {{2, 5}}, "x")}, {}}, *deployment);
    if (bootstrap.info().rank == 0) {
      // Read and released on rank 0 alone: rank 1 still owes it to its readers.
      const auto acquired = std::get<Acquired>(rank.store()->acquire(std::string("x"), 1));
      rank.store()->release(acquired.lease, 1);
    }
    const BatchReport report = rank.runner().run({{job_of(2, {{2, 6}}, "x")}, {}}, *deployment);
    require(report.jobs.at(0).failure.code == "name_in_use", "the second job of that name is refused");
    require(std::holds_alternative<Failed>(rank.store()->acquire(JobId{2}, 1)), "by its number too");
    if (bootstrap.info().rank == 1) {
      const AcquireOutcome outcome = rank.store()->acquire(std::string("x"), 1);
      require(std::holds_alternative<Acquired>(outcome) && std::get<Acquired>(outcome).job == 1,
              "the first is still there");
    }
  });
}

TEST_CASE("failures that are announced reach the readers of every rank") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(kBatchParallel);
    rank.runner().run({{}, {{7, "late", "deadline", "its deadline passed"}}}, *deployment);
    const AcquireOutcome by_name = rank.store()->acquire(std::string("late"), 1);
    require(std::holds_alternative<Failed>(by_name) && std::get<Failed>(by_name).failure.code == "deadline",
            "by name");
    require(std::holds_alternative<Failed>(rank.store()->acquire(JobId{7}, 1)), "by number");
  });
}

}  // namespace
}  // namespace gemmad
