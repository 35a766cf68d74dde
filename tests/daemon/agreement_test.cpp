#include "daemon/agreement.h"

#include <atomic>

#include "tests/support/catch.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};

/// What agree() throws on each of `num_ranks` ranks when `failing` fails; all must say the same.
std::string common_failure(int num_ranks, int failing) {
  std::vector<std::string> messages(static_cast<std::size_t>(num_ranks));
  run_ranks(num_ranks, [&](Bootstrap& bootstrap) {
    const int rank = bootstrap.info().rank;
    try {
      agree(bootstrap, kTimeout, [&] {
        if (rank == failing) throw std::runtime_error("the shard is missing");
      });
    } catch (const StepFailed& error) {
      messages[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  for (const std::string& message : messages) {
    if (message != messages[0]) return "ranks disagree";
  }
  return messages[0];
}

TEST_CASE("a step that works everywhere works") {
  CHECK(common_failure(4, -1).empty());
}

TEST_CASE("a step that fails on one rank fails on all, which name the rank") {
  CHECK(common_failure(4, 2) == "rank 2: the shard is missing");
}

TEST_CASE("what rank 0 meets is said without a rank") {
  CHECK(common_failure(2, 0) == "the shard is missing");
}

TEST_CASE("an interruption on one rank interrupts all") {
  std::atomic<int> interrupted = 0;
  run_ranks(3, [&](Bootstrap& bootstrap) {
    try {
      agree(bootstrap, kTimeout, [&] {
        if (bootstrap.info().rank == 1) throw StepInterrupted("stopped while loading");
      });
    } catch (const StepInterrupted&) {
      ++interrupted;
    }
  });
  CHECK(interrupted == 3);
}

TEST_CASE("a message of any length arrives cut, not broken") {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    try {
      agree(bootstrap, kTimeout, [] { throw std::runtime_error(std::string(100'000, 'x')); });
    } catch (const StepFailed& error) {
      if (std::string(error.what()).size() < 1000) throw std::runtime_error("too much was cut");
    }
  });
}

}  // namespace
}  // namespace gemmad
