#include "daemon/ctl/bench/bench_target.h"

#include <nlohmann/json.hpp>

#include "daemon/ctl/control_client.h"
#include "daemon/ctl/options.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;
using Ranks = std::vector<int>;

/// Ranks 0 and 1 on this host, rank 2 on another.
json some_info() {
  return {{"config", {{"max_tokens", 100}}},
          {"model", {{"vocab_size", 512}}},
          {"ranks",
           {{{"rank", 0}, {"node", 0}, {"reader_socket", "/r0"}},
            {{"rank", 1}, {"node", 0}, {"reader_socket", "/r1"}},
            {{"rank", 2}, {"node", 1}, {"reader_socket", "/r2"}}}}};
}

BenchOptions reading(ReadBy by, int rank = 0) {
  BenchOptions options;
  options.tokens = {100};
  options.read_by = by;
  options.read_rank = rank;
  return options;
}

TEST_CASE("the ranks of this host have readers, those of others are counted") {
  const BenchTarget target = bench_target(some_info(), reading(ReadBy::kOneRank));
  CHECK(target.vocab_size == 512);
  REQUIRE(target.ranks.size() == 2);
  CHECK(target.ranks[1].rank == 1);
  CHECK(target.ranks[1].reader_socket == "/r1");
  CHECK(target.num_other_ranks == 1);
}

TEST_CASE("those copy that the options name") {
  CHECK(bench_target(some_info(), reading(ReadBy::kOneRank)).copying_ranks() == Ranks{0});
  CHECK(bench_target(some_info(), reading(ReadBy::kOneRank, 1)).copying_ranks() == Ranks{1});
  CHECK(bench_target(some_info(), reading(ReadBy::kAllRanks)).copying_ranks() == Ranks{0, 1});
  CHECK(bench_target(some_info(), reading(ReadBy::kNobody)).copying_ranks().empty());
}

TEST_CASE("a rank that is not on this host cannot copy") {
  CHECK_THROWS_AS(bench_target(some_info(), reading(ReadBy::kOneRank, 2)), CtlUsageError);
  CHECK_THROWS_AS(bench_target(some_info(), reading(ReadBy::kOneRank, 9)), CtlUsageError);
}

TEST_CASE("a prompt that the daemon would cut is refused") {
  BenchOptions options = reading(ReadBy::kOneRank);
  options.tokens = {5, 101};
  CHECK_THROWS_AS(bench_target(some_info(), options), CtlUsageError);
}

TEST_CASE("an info that lacks something is an error of the daemon") {
  for (const char* field : {"config", "model", "ranks"}) {
    json info = some_info();
    info.erase(field);
    CHECK_THROWS_AS(bench_target(info, reading(ReadBy::kOneRank)), ClientError);
  }
}

}  // namespace
}  // namespace gemmad
