#include "daemon/result_directory.h"

#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using JobIds = std::vector<JobId>;

PromptKey key(std::vector<std::int32_t> ids, std::vector<std::int64_t> hidden_states = {0}) {
  return {std::move(ids), {std::move(hidden_states), false}};
}

/// A job of prompts {first}, {first + 1}, ...
std::vector<ComputedPrompt> prompts(std::int32_t first, std::int32_t count = 1) {
  std::vector<ComputedPrompt> prompts;
  for (std::int32_t i = 0; i < count; ++i)
    prompts.push_back({static_cast<std::size_t>(i), key({first + i})});
  return prompts;
}

TEST_CASE("a prompt that was computed is found where it was") {
  ResultDirectory directory(100);
  CHECK(directory.find(key({2, 5})) == std::nullopt);
  CHECK(directory.remember(7, 10, {{1, key({2, 5})}, {3, key({2, 6})}}).empty());
  CHECK(directory.find(key({2, 5})) == EarlierPrompt{7, 1});
  CHECK(directory.find(key({2, 6})) == EarlierPrompt{7, 3});
}

TEST_CASE("prompts are the same only with the same ids and outputs") {
  ResultDirectory directory(100);
  directory.remember(1, 10, {{0, {{2, 5, 0}, {{0, 4}, true}}}});
  const OutputSelection outputs{{0, 4}, true};
  CHECK(directory.find({{2, 5, 0}, outputs}) == EarlierPrompt{1, 0});
  CHECK_FALSE(directory.find({{2, 5}, outputs}));
  CHECK_FALSE(directory.find({{5, 2, 0}, outputs}));
  CHECK_FALSE(directory.find({{}, outputs}));
  CHECK_FALSE(directory.find({{2, 5, 0}, {{0, 4}, false}}));
  CHECK_FALSE(directory.find({{2, 5, 0}, {{0}, true}}));
  CHECK_FALSE(directory.find({{2, 5, 0}, {{0, 5}, true}}));
}

TEST_CASE("the same ids with other outputs are another prompt") {
  ResultDirectory directory(100);
  directory.remember(1, 10, {{0, key({2}, {0})}, {1, key({2}, {1})}});
  directory.remember(2, 10, {{0, key({2}, {2})}});
  CHECK(directory.find(key({2}, {0})) == EarlierPrompt{1, 0});
  CHECK(directory.find(key({2}, {1})) == EarlierPrompt{1, 1});
  CHECK(directory.find(key({2}, {2})) == EarlierPrompt{2, 0});
}

TEST_CASE("the job used least recently is forgotten first, with all its prompts") {
  ResultDirectory directory(30);
  directory.remember(1, 10, prompts(10, 2));
  directory.remember(2, 10, prompts(20, 2));
  directory.remember(3, 10, prompts(30, 2));
  CHECK(directory.find(key({11})));
  CHECK(directory.remember(4, 10, prompts(40)) == JobIds{2});
  CHECK_FALSE(directory.find(key({20})));
  CHECK_FALSE(directory.find(key({21})));
  CHECK(directory.find(key({10})));
  CHECK(directory.remember(5, 20, prompts(50)) == JobIds{3, 4});
  CHECK(directory.counters().bytes == 30);
}

TEST_CASE("a miss is no use of a job") {
  ResultDirectory directory(20);
  directory.remember(1, 10, prompts(1));
  directory.remember(2, 10, prompts(2));
  CHECK_FALSE(directory.find(key({3})));
  CHECK(directory.remember(3, 10, prompts(3)) == JobIds{1});
}

TEST_CASE("a job as large as the bound takes all, a larger one is not remembered and costs no other") {
  ResultDirectory directory(20);
  directory.remember(1, 10, prompts(1));
  CHECK(directory.remember(2, 21, prompts(2)) == JobIds{2});
  CHECK(directory.remember(3, ~std::uint64_t{0}, prompts(3)) == JobIds{3});
  CHECK(directory.find(key({1})));
  CHECK_FALSE(directory.find(key({2})));
  CHECK(directory.remember(4, 20, prompts(4)) == JobIds{1});
  CHECK(directory.counters().bytes == 20);
}

TEST_CASE("a directory of 0 bytes remembers nothing") {
  ResultDirectory directory(0);
  CHECK_FALSE(directory.on());
  CHECK(directory.remember(1, 10, prompts(1)) == JobIds{1});
  CHECK(directory.remember(2, 0, prompts(2)) == JobIds{2});
  CHECK_FALSE(directory.find(key({2})));
  CHECK(directory.forget_oldest() == std::nullopt);
}

TEST_CASE("a prompt twice in a job is found where it stands first") {
  ResultDirectory directory(100);
  CHECK(directory.remember(1, 10, {{0, key({2})}, {1, key({3})}, {2, key({2})}}).empty());
  CHECK(directory.find(key({2})) == EarlierPrompt{1, 0});
  CHECK(directory.counters().prompts == 2);
  CHECK(directory.clear() == JobIds{1});
  CHECK(directory.counters().prompts == 0);
}

TEST_CASE("a job without a prompt that is new is not remembered") {
  ResultDirectory directory(100);
  CHECK(directory.remember(1, 0, {}) == JobIds{1});
  directory.remember(2, 10, prompts(1, 2));
  CHECK(directory.remember(3, 10, prompts(2)) == JobIds{3});
  CHECK(directory.find(key({2})) == EarlierPrompt{2, 1});
  CHECK(directory.counters().jobs == 1);
}

TEST_CASE("a prompt that two jobs computed stays with the first and goes with it") {
  ResultDirectory directory(20);
  directory.remember(1, 10, prompts(1, 2));
  directory.remember(2, 10, prompts(2, 2));
  CHECK(directory.find(key({3})) == EarlierPrompt{2, 1});
  CHECK(directory.remember(3, 10, prompts(9)) == JobIds{1});
  CHECK_FALSE(directory.find(key({2})));
  CHECK(directory.find(key({3})) == EarlierPrompt{2, 1});
}

TEST_CASE("a job remembered twice is an error of the caller") {
  ResultDirectory directory(20);
  directory.remember(1, 10, prompts(1));
  CHECK_THROWS_AS(directory.remember(1, 10, prompts(2)), std::logic_error);
  CHECK_FALSE(directory.find(key({2})));
}

TEST_CASE("all that is forgotten comes out, the least recently used first") {
  ResultDirectory directory(100);
  for (JobId job = 1; job <= 4; ++job)
    directory.remember(job, 10, prompts(static_cast<std::int32_t>(job)));
  directory.find(key({1}));
  CHECK(directory.forget_oldest() == JobId{2});
  CHECK(directory.clear() == JobIds{3, 4, 1});
  CHECK(directory.clear().empty());
  CHECK(directory.counters().bytes == 0);
}

TEST_CASE("a smaller bound forgets what is beyond it") {
  ResultDirectory directory(100);
  for (JobId job = 1; job <= 3; ++job)
    directory.remember(job, 10, prompts(static_cast<std::int32_t>(job)));
  CHECK(directory.set_max_bytes(200).empty());
  CHECK(directory.set_max_bytes(20) == JobIds{1});
  CHECK(directory.set_max_bytes(0) == JobIds{2, 3});
  CHECK_FALSE(directory.on());
}

TEST_CASE("a bound of 0 forgets jobs of no bytes as well") {
  ResultDirectory directory(10);
  directory.remember(1, 0, prompts(1));
  CHECK(directory.set_max_bytes(0) == JobIds{1});
}

TEST_CASE("hits and misses are counted, and survive forgetting") {
  ResultDirectory directory(100);
  directory.find(key({1}));
  directory.remember(1, 10, prompts(1, 3));
  directory.find(key({1}));
  directory.find(key({3}));
  directory.remember(2, 5, prompts(7));
  const auto full = directory.counters();
  CHECK(full.hits == 2);
  CHECK(full.misses == 1);
  CHECK(full.bytes == 15);
  CHECK(full.jobs == 2);
  CHECK(full.prompts == 4);
  directory.clear();
  const auto empty = directory.counters();
  CHECK(empty.hits == 2);
  CHECK(empty.misses == 1);
  CHECK(empty.jobs == 0);
  CHECK(empty.prompts == 0);
}

TEST_CASE("whatever happens, it knows just what the ranks keep") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  ResultDirectory directory(50);
  std::map<JobId, std::pair<std::uint64_t, std::vector<ComputedPrompt>>> kept;
  for (JobId job = 1; job <= 5000; ++job) {
    std::vector<ComputedPrompt> computed;
    for (std::int32_t p = below(4); p-- > 0;)
      computed.push_back({computed.size(), key({below(6), below(6)})});
    const auto size_bytes = static_cast<std::uint64_t>(below(60));
    kept[job] = {size_bytes, computed};
    for (const JobId forgotten : directory.remember(job, size_bytes, computed))
      REQUIRE(kept.erase(forgotten) == 1);

    const PromptKey wanted = key({below(6), below(6)});
    if (const auto found = directory.find(wanted)) {
      const auto lender = kept.find(found->job);
      REQUIRE(lender != kept.end());
      REQUIRE(lender->second.second.at(found->prompt).key == wanted);
    }
    std::uint64_t bytes = 0;
    for (const auto& [id, entry] : kept)
      bytes += entry.first;
    REQUIRE(directory.counters().bytes == bytes);
    REQUIRE(bytes <= 50);
    REQUIRE(directory.counters().jobs == kept.size());
  }
}

}  // namespace
}  // namespace gemmad
