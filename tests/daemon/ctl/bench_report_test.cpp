#include <nlohmann/json.hpp>
#include <string>

#include "daemon/ctl/bench/report.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// Two requests of three prompts each, and two failures.
TallyTotals some_totals() {
  Tally tally;
  tally.add({.total_ms = 30,
             .queue_ms = 1,
             .compute_ms = 20,
             .deliver_ms = 4,
             .prompts = 3,
             .tokens = 50,
             .reader_bytes = 1'000'000,
             .cut = "deal"});
  tally.add({.total_ms = 10,
             .queue_ms = 2,
             .compute_ms = 6,
             .deliver_ms = 1,
             .prompts = 3,
             .tokens = 50,
             .reader_bytes = 1'000'000,
             .cut = "split"});
  tally.fail("queue_full", "256 requests wait");
  tally.fail("queue_full", "257 requests wait");
  return tally.totals();
}

json some_report() {
  LoadEnd end;
  end.wall = std::chrono::milliseconds(500);
  return bench_report(some_totals(), end, {}, {0, 1});
}

TEST_CASE("a failure keeps its count and its first message") {
  const FailedRequests failed = some_totals().failures.at("queue_full");
  CHECK(failed.count == 2);
  CHECK(failed.message == "256 requests wait");
}

TEST_CASE("counts, rates and percentiles are those of the requests that succeeded") {
  const json report = some_report();
  CHECK(report["done"] == 2);
  CHECK(report["failed"] == 2);
  CHECK(report["errors"] == json{{"queue_full", 2}});
  CHECK(report["prompts"] == 6);
  CHECK(report["tokens"] == 100);
  CHECK(report["reader_bytes"] == 2'000'000);
  CHECK(report["cuts"] == json{{"deal", 1}, {"split", 1}});
  CHECK(report["wall_s"] == 0.5);
  CHECK(report["per_second"] ==
        json{{"requests", 4.0}, {"prompts", 12.0}, {"tokens", 200.0}, {"reader_bytes", 4e6}});
  CHECK(report["request_ms"] == json{{"p50", 10.0}, {"p90", 30.0}, {"p99", 30.0}, {"max", 30.0}});
}

TEST_CASE("shares are parts of the time of all requests together, and the rest is what is left") {
  CHECK(some_report()["shares"] ==
        json{{"queue", 0.075}, {"compute", 0.65}, {"deliver", 0.125}, {"rest", 0.15}});
}

TEST_CASE("settings are told, and null where they were not given") {
  CtlOptions options;
  options.bench.requests = 7;
  options.prefer = "split";
  options.layers = {3};
  const json settings = bench_report(some_totals(), {}, options, {1})["settings"];
  CHECK(settings["requests"] == 7);
  CHECK(settings["prefer"] == "split");
  CHECK(settings["layers"] == json{3});
  CHECK(settings["read_ranks"] == json{1});
  CHECK(settings["seconds"].is_null());
  CHECK(settings["outputs"].is_null());
}

TEST_CASE("the table shows figures, failures and readers") {
  const std::string table = bench_table(some_report());
  for (const char* part :
       {"2 done, 2 failed in 0.50 s", "queue_full 2", "p50 10.00", "max 30.00", "4.00 requests",
        "4.00 MB to the readers of ranks 0 1", "compute 65.0 %", "rest 15.0 %", "deal 1, split 1"}) {
    INFO(part << " in\n" << table);
    CHECK(table.find(part) != std::string::npos);
  }
}

TEST_CASE("where nothing succeeded there are counts but no figures") {
  Tally tally;
  tally.fail("deadline", "too late");
  const json report = bench_report(tally.totals(), {}, {}, {0});
  CHECK(report["failed"] == 1);
  for (const char* field : {"request_ms", "per_second", "shares"})
    CHECK(report[field].is_null());
  CHECK(bench_table(report).find("deadline 1") != std::string::npos);
}

}  // namespace
}  // namespace gemmad
