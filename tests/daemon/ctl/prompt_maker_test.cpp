#include "daemon/ctl/bench/prompt_maker.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

TEST_CASE("a request has a prompt of each count, BOS first, ids inside the vocabulary") {
  const PromptMaker maker({1, 300, 5}, 10, 1);
  const json prompts = maker.prompts(0);
  REQUIRE(prompts.size() == 3);
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto ids = prompts[i].at("input_ids").get<std::vector<std::int64_t>>();
    CHECK(ids.size() == std::vector<std::size_t>{1, 300, 5}[i]);
    CHECK(ids[0] == 2);
    seen.insert(ids.begin(), ids.end());
  }
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 9);
}

TEST_CASE("the same seed and number give the same prompts, others give others") {
  const PromptMaker maker({50}, 1000, 7);
  CHECK(maker.prompts(3) == PromptMaker({50}, 1000, 7).prompts(3));
  CHECK(maker.prompts(3) != maker.prompts(4));
  CHECK(maker.prompts(3) != PromptMaker({50}, 1000, 8).prompts(3));
}

TEST_CASE("a vocabulary without BOS is refused") {
  CHECK_THROWS_AS(PromptMaker({5}, 2, 1), std::invalid_argument);
}

}  // namespace
}  // namespace gemmad
