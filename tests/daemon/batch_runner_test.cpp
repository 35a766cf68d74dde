#include "daemon/batch_runner.h"

#include <cstring>
#include <memory>
#include <optional>

#include "daemon/model/model_files.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/support/catch.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

constexpr std::chrono::milliseconds kTimeout{60'000};
constexpr std::uint64_t kSegmentBytes = 1 << 20;

/// One rank with a real encoder on the tiny model.
struct TestRank {
  explicit TestRank(Bootstrap& bootstrap)
      : files(open_model(GEMMAD_TEST_DATA "/models/gemma3-tiny")),
        ops(make_cpu_ops(1)),
        encoder(files.config(), load_text_weights(files, *ops, [](auto, auto) {}), *ops, 1024),
        segment(Segment::create(kSegmentBytes, bootstrap.info().rank)),
        store(segment, ResultStore::Options{}),
        collectives(make_host_collectives(bootstrap, kTimeout)),
        runner(bootstrap, *collectives, encoder, *ops, store, {kTimeout, kTimeout}) {}

  ModelFiles files;
  std::unique_ptr<Ops> ops;
  TextEncoder encoder;
  Segment segment;
  ResultStore store;
  std::unique_ptr<Collectives> collectives;
  BatchRunner runner;
};

Job job(JobId id, const std::vector<std::vector<std::int32_t>>& prompts, const std::string& name = "") {
  Job job;
  job.id = id;
  job.name = name;
  job.outputs.hidden_states = {0, 8};
  for (const auto& ids : prompts) {
    JobPrompt prompt;
    prompt.ids = ids;
    job.prompts.push_back(std::move(prompt));
  }
  return job;
}

std::vector<std::byte> bytes_of(const TestRank& rank, const TensorInfo& tensor) {
  const auto bytes = rank.segment.bytes().subspan(tensor.offset, tensor.size_bytes);
  return {bytes.begin(), bytes.end()};
}

/// All tensors of a published job, one after another.
std::vector<std::byte> contents(const TestRank& rank, const JobOutcome& outcome) {
  std::vector<std::byte> all;
  for (const PromptResult& prompt : outcome.prompts) {
    for (const TensorInfo& tensor : prompt.tensors) {
      const std::vector<std::byte> bytes = bytes_of(rank, tensor);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return all;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("not so: ") + what);
}

const std::vector<std::vector<std::int32_t>> kPrompts = {{2, 10, 11}, {2}, {2, 20, 21, 22, 23, 24}, {2, 30}};

TEST_CASE("every rank publishes the same bytes, whoever computed them") {
  std::vector<std::vector<std::byte>> published(3);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const BatchReport report = rank.runner.run({{job(1, kPrompts)}, {}});
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the job is published");
    require(report.ranks.size() == 3, "every rank told its state");
    published[static_cast<std::size_t>(bootstrap.info().rank)] = contents(rank, report.jobs[0]);
  });
  CHECK(published[0].size() == 12 * 2 * 96 * 4);
  CHECK(published[0] == published[1]);
  CHECK(published[0] == published[2]);
}

TEST_CASE("a job without prompts is published empty") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const BatchReport report = rank.runner.run({{job(1, {})}, {}});
    require(report.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the job is published");
    require(std::holds_alternative<Acquired>(rank.store.acquire(JobId{1}, 1)), "its readers get it");
  });
}

TEST_CASE("prompts beyond one forward pass go in several") {
  run_ranks(1, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const std::vector<std::vector<std::int32_t>> prompts(3, std::vector<std::int32_t>(600, 7));
    const BatchReport report = rank.runner.run({{job(1, prompts)}, {}});
    require(report.jobs.at(0).kind == JobOutcome::Kind::kFailed, "1.4 MB do not fit 1 MiB");
    require(report.jobs[0].failure.code == "result_too_large", "and it says so");
    Job narrow = job(2, prompts);
    narrow.outputs.hidden_states = {8};
    const BatchReport second = rank.runner.run({{narrow}, {}});
    require(second.jobs.at(0).kind == JobOutcome::Kind::kPublished, "one layer of it fits");
    const auto& tensors = second.jobs[0].prompts;
    require(bytes_of(rank, tensors[0].tensors[0]) == bytes_of(rank, tensors[2].tensors[0]),
            "equal prompts, equal bytes");
  });
}

TEST_CASE("a forward pass that fails on one rank fails the job on all, and the next one works") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    // Longest first: the good prompt is rank 0's, the one with an id out of range rank 1's.
    const BatchReport report = rank.runner.run({{job(1, {{2, 10, 11}, {100'000}}, "x")}, {}});
    require(report.jobs.at(0).kind == JobOutcome::Kind::kFailed, "it failed");
    require(report.jobs[0].failure.code == "internal", "with a code");
    require(report.jobs[0].failure.message.find("rank 1") != std::string::npos, "that names the rank");
    require(std::holds_alternative<Failed>(rank.store.acquire(std::string("x"), 1)), "readers hear of it");
    require(rank.store.stats().used_bytes == 0, "its space is free again");
    const BatchReport next = rank.runner.run({{job(2, kPrompts, "x")}, {}});
    require(next.jobs.at(0).kind == JobOutcome::Kind::kPublished, "the next job is published");
  });
}

TEST_CASE("a rank without space makes all of them wait, and the jobs behind") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    const JobId filler = 100;
    if (bootstrap.info().rank == 1) {
      require(rank.store.reserve(filler, "", kSegmentBytes - 16 * 4096) == ReserveVerdict::kReserved,
              "the filler fits");
    }
    const std::vector<std::vector<std::int32_t>> large(2, std::vector<std::int32_t>(100, 7));
    const Batch batch{{job(1, large), job(2, {{2}})}, {}};
    const BatchReport report = rank.runner.run(batch);
    require(report.jobs.at(0).kind == JobOutcome::Kind::kNoSpace, "the large job waits on both ranks");
    require(report.jobs.at(1).kind == JobOutcome::Kind::kNoSpace, "the small one does not overtake it");
    require(report.jobs[0].failure.code == "buffers_exhausted", "it knows what it would fail with");
    if (bootstrap.info().rank == 1) rank.store.release_reservation(filler);
    const BatchReport again = rank.runner.run(batch);
    require(again.jobs.at(0).kind == JobOutcome::Kind::kPublished, "with space the large job runs");
    require(again.jobs.at(1).kind == JobOutcome::Kind::kPublished, "and the small one");
  });
}

TEST_CASE("a name in use on one rank is refused on all and its result stays") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    rank.runner.run({{job(1, {{2, 5}}, "x")}, {}});
    if (bootstrap.info().rank == 0) {
      // Read and released on rank 0 alone: rank 1 still owes it to its readers.
      const auto acquired = std::get<Acquired>(rank.store.acquire(std::string("x"), 1));
      rank.store.release(acquired.lease, 1);
    }
    const BatchReport report = rank.runner.run({{job(2, {{2, 6}}, "x")}, {}});
    require(report.jobs.at(0).failure.code == "name_in_use", "the second job of that name is refused");
    require(std::holds_alternative<Failed>(rank.store.acquire(JobId{2}, 1)), "by its number too");
    if (bootstrap.info().rank == 1) {
      const AcquireOutcome outcome = rank.store.acquire(std::string("x"), 1);
      require(std::holds_alternative<Acquired>(outcome) && std::get<Acquired>(outcome).job == 1,
              "the first is still there");
    }
  });
}

TEST_CASE("failures that are announced reach the readers of every rank") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    rank.runner.run({{}, {{7, "late", "deadline", "its deadline passed"}}});
    const AcquireOutcome by_name = rank.store.acquire(std::string("late"), 1);
    require(std::holds_alternative<Failed>(by_name) && std::get<Failed>(by_name).failure.code == "deadline",
            "by name");
    require(std::holds_alternative<Failed>(rank.store.acquire(JobId{7}, 1)), "by number");
  });
}

}  // namespace
}  // namespace gemmad
