#include <string>
#include <vector>

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Counts = std::vector<std::int64_t>;

CtlOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return parse_ctl_options(arguments);
}

std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse_ctl_options(arguments);
  } catch (const CtlUsageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("bench without options sends prompts of 128 tokens over one connection, read on rank 0") {
  const BenchOptions bench = parse({}).bench;
  CHECK(bench.tokens == Counts{128});
  CHECK(bench.tokens_text == "128");
  CHECK(bench.concurrency == 1);
  CHECK_FALSE(bench.requests);
  CHECK_FALSE(bench.seconds);
  CHECK(bench.warmup == 1);
  CHECK(bench.read_by == ReadBy::kOneRank);
  CHECK(bench.read_rank == 0);
}

TEST_CASE("tokens lists a prompt each, with a factor as many") {
  CHECK(parse({"--tokens", "128,128,1024"}).bench.tokens == Counts{128, 128, 1024});
  CHECK(parse({"--tokens=3x20,7"}).bench.tokens == Counts{20, 20, 20, 7});
  CHECK(parse({"--tokens", "3x20,7"}).bench.tokens_text == "3x20,7");
}

TEST_CASE("read names nobody, one rank or all") {
  CHECK(parse({"--read", "none"}).bench.read_by == ReadBy::kNobody);
  CHECK(parse({"--read", "all"}).bench.read_by == ReadBy::kAllRanks);
  const BenchOptions one = parse({"--read", "3"}).bench;
  CHECK(one.read_by == ReadBy::kOneRank);
  CHECK(one.read_rank == 3);
}

TEST_CASE("bench takes numbers, a preference, and what encode has for outputs") {
  const CtlOptions options = parse({"--concurrency", "8", "--requests", "500", "--seconds", "2.5", "--warmup",
                                    "0", "--seed", "9", "--prefer", "split", "--layers", "0,8", "--outputs",
                                    "hidden_states", "--deadline-ms", "70", "--json"});
  CHECK(options.bench.concurrency == 8);
  CHECK(options.bench.requests == 500);
  CHECK(options.bench.seconds == 2.5);
  CHECK(options.bench.warmup == 0);
  CHECK(options.bench.seed == 9);
  CHECK(options.prefer == "split");
  CHECK(options.layers == Counts{0, 8});
  CHECK(options.outputs == std::vector<std::string>{"hidden_states"});
  CHECK(options.deadline_ms == 70);
  CHECK(options.json);
}

TEST_CASE("values out of bounds are refused by option, value and bound") {
  const std::vector<std::vector<const char*>> wrong = {
      {"--tokens", ""},       {"--tokens", "0"},         {"--tokens", "5,"},     {"--tokens", "x5"},
      {"--tokens", "2x"},     {"--tokens", "1x2x3"},     {"--tokens", "-4"},     {"--tokens", "1000001"},
      {"--concurrency", "0"}, {"--concurrency", "1025"}, {"--requests", "0"},    {"--requests", "1e3"},
      {"--seconds", "0"},     {"--seconds", "nan"},      {"--seconds", "86401"}, {"--warmup", "-1"},
      {"--prefer", "both"},   {"--read", "some"},        {"--read", "-1"},       {"--seed", "-1"},
      {"--requests", "5 "},   {"--tokens", "65536x1,1"}, {"--tokens", "65537x1"}};
  for (const auto& words : wrong) {
    const std::string message = refusal({"bench", words[0], words[1]});
    INFO(words[0] << " " << words[1] << ": " << message);
    CHECK(message.find(words[0]) != std::string::npos);
  }
  CHECK(refusal({"bench", "--concurrency", "1025"}).find("'1025'; it must be a number from 1 to 1024") !=
        std::string::npos);
}

TEST_CASE("an option of another command is refused rather than ignored") {
  CHECK(refusal({"bench", "--prompt", "a"}).find("--prompt is no option of bench") == 0);
  CHECK(refusal({"bench", "--as-prompts"}).find("--as-prompts is no option of bench") == 0);
  CHECK(refusal({"encode", "--concurrency", "2"}).find("--concurrency is no option of encode") == 0);
  CHECK(refusal({"--seed", "2", "health"}).find("--seed is no option of health") == 0);
  CHECK(refusal({"bench", "--conc", "2"}).find("--conc") != std::string::npos);
}

TEST_CASE("the help tells every option of bench") {
  const std::string help = ctl_help_text();
  for (const char* option : {"--tokens", "--concurrency", "--requests", "--seconds", "--warmup", "--read",
                             "--prefer", "--seed", "--json", "--outputs", "--layers", "--deadline-ms"}) {
    INFO(option);
    CHECK(help.find(option, help.find("\nbench:")) != std::string::npos);
  }
}

}  // namespace
}  // namespace gemmad
