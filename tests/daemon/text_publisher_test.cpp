#include "daemon/text_publisher.h"

#include <string>
#include <variant>

#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

/// The text that a reader of this rank's place acquires.
std::string acquired(TestRank& rank, const ResultKey& key) {
  const AcquireOutcome outcome = rank.store()->acquire(key, 1);
  const auto* result = std::get_if<Acquired>(&outcome);
  require(result != nullptr, "it is there");
  const TensorInfo& tensor = result->prompts->at(0).tensors.at(0);
  require(tensor.name == "text" && tensor.dtype == DType::kU8, "one tensor, of bytes");
  const std::vector<std::byte> bytes = rank.bytes_of(tensor);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TextPublisher publisher_of(TestRank& rank) {
  return {rank.bootstrap(), rank.output(), TestRank::kTimeout};
}

TEST_CASE("Readers of every rank find a text by its name and by its number") {
  run_ranks(3, [](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    publisher_of(rank).publish({{7, "caption", 2, true, "a red fox", {}}, {8, "", 1, true, "", {}}});
    require(acquired(rank, ResultKey(std::string("caption"))) == "a red fox", "by name");
    require(acquired(rank, ResultKey(JobId{7})) == "a red fox", "by number");
    require(acquired(rank, ResultKey(JobId{8})).empty(), "nothing is a text too");
  });
}

TEST_CASE("Readers of one that failed hear why") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    publisher_of(rank).publish({{7, "caption", 0, false, "", {"deadline", "too late"}}});
    const AcquireOutcome outcome = rank.store()->acquire(ResultKey(std::string("caption")), 1);
    const auto* failed = std::get_if<Failed>(&outcome);
    require(failed != nullptr && failed->failure.code == "deadline", "by code");
  });
}

TEST_CASE("A text that one rank has no space for reaches no reader, and all are told") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    if (rank.number() == 1) {
      // All of the segment, held by a reader.
      require(rank.store()->reserve(1, "", TestRank::kSegmentBytes - 65536) == ReserveVerdict::kReserved,
              "room");
      rank.store()->publish(1, {});
      rank.store()->acquire(ResultKey(JobId{1}), 5);
    }
    const std::string text(100'000, 'x');
    publisher_of(rank).publish({{7, "caption", 0, true, text, {}}, {8, "short", 0, true, "short", {}}});
    require(std::holds_alternative<Failed>(rank.store()->acquire(ResultKey(JobId{7}), 1)), "nobody has it");
    require(acquired(rank, ResultKey(std::string("short"))) == "short", "another one has room");
  });
}

TEST_CASE("A name that is in use stays with its owner") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    TestRank rank(bootstrap);
    publisher_of(rank).publish({{7, "caption", 0, true, "first", {}}});
    publisher_of(rank).publish({{8, "caption", 0, true, "second", {}}});
    require(acquired(rank, ResultKey(std::string("caption"))) == "first", "the first one's");
    require(std::holds_alternative<Failed>(rank.store()->acquire(ResultKey(JobId{8}), 1)),
            "the other failed");
  });
}

}  // namespace
}  // namespace gemmad
