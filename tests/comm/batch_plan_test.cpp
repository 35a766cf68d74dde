#include "comm/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

std::vector<std::int64_t> shares(const std::vector<std::int64_t>& tokens, const std::vector<int>& owners,
                                 int num_replicas) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(num_replicas), 0);
  for (std::size_t p = 0; p < tokens.size(); ++p)
    sums[static_cast<std::size_t>(owners[p])] += tokens[p];
  return sums;
}

TEST_CASE("deal_prompts gives one replica everything") {
  CHECK(deal_prompts(std::vector<std::int64_t>{5, 1, 9}, 1) == std::vector<int>{0, 0, 0});
}

TEST_CASE("deal_prompts gives a pair to two replicas") {
  CHECK(deal_prompts(std::vector<std::int64_t>{20, 128}, 2) == std::vector<int>{1, 0});
}

TEST_CASE("deal_prompts breaks ties by order and by replica") {
  CHECK(deal_prompts(std::vector<std::int64_t>{7, 7, 7, 7}, 4) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("deal_prompts leaves replicas idle when prompts are few") {
  CHECK(deal_prompts(std::vector<std::int64_t>{3}, 8) == std::vector<int>{0});
}

TEST_CASE("deal_prompts takes an empty batch") {
  CHECK(deal_prompts({}, 4).empty());
}

TEST_CASE("deal_prompts gives prompts without tokens to replica 0 and counts them nowhere") {
  CHECK(deal_prompts(std::vector<std::int64_t>{0, 10, 0, 10}, 2) == std::vector<int>{0, 0, 0, 1});
}

TEST_CASE("deal_prompts refuses what cannot be") {
  CHECK_THROWS_AS(deal_prompts(std::vector<std::int64_t>{1}, 0), std::invalid_argument);
  CHECK_THROWS_AS(deal_prompts(std::vector<std::int64_t>{-1}, 2), std::invalid_argument);
}

TEST_CASE("deal_prompts exceeds the mean share by less than one prompt") {
  std::mt19937 random(7);
  INFO("seed 7");
  for (int round = 0; round < 200; ++round) {
    const int num_replicas = 1 + static_cast<int>(random() % 8);
    std::vector<std::int64_t> tokens(random() % 40);
    for (std::int64_t& t : tokens)
      t = 1 + static_cast<std::int64_t>(random() % 1024);
    const std::vector<std::int64_t> sums = shares(tokens, deal_prompts(tokens, num_replicas), num_replicas);
    const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    const std::int64_t longest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
    // No deal is better than the mean share or the longest prompt; greedy exceeds the mean by less than one
    // prompt.
    CHECK(*std::max_element(sums.begin(), sums.end()) <= total / num_replicas + longest);
  }
}

using Tokens = std::vector<std::int64_t>;
using Bounds = std::vector<std::size_t>;

TEST_CASE("cut_runs makes one run of what one forward pass takes") {
  CHECK(cut_runs(Tokens{10, 20, 30}, 60, 1, 1) == Bounds{0, 3});
}

TEST_CASE("cut_runs begins a run where the next prompt does not fit") {
  CHECK(cut_runs(Tokens{10, 20, 31}, 60, 1, 1) == Bounds{0, 2, 3});
  CHECK(cut_runs(Tokens{60, 60, 1}, 60, 1, 1) == Bounds{0, 1, 2, 3});
}

TEST_CASE("cut_runs gives a prompt over the limit a run of its own") {
  CHECK(cut_runs(Tokens{1, 100, 1}, 60, 1, 1) == Bounds{0, 1, 2, 3});
  CHECK(cut_runs(Tokens{100}, 60, 1, 1) == Bounds{0, 1});
}

TEST_CASE("cut_runs of no prompts has no run") {
  CHECK(cut_runs(Tokens{}, 60, 1, 1) == Bounds{0});
  CHECK(cut_runs(Tokens{}, 60, 1, 4) == Bounds{0});
}

TEST_CASE("cut_runs keeps prompts without tokens in a run") {
  CHECK(cut_runs(Tokens{0, 0, 5}, 60, 1, 1) == Bounds{0, 3});
}

TEST_CASE("cut_runs gives a pipeline about two runs a stage") {
  CHECK(cut_runs(Tokens(16, 10), 1000, 1, 4) == Bounds{0, 2, 4, 6, 8, 10, 12, 14, 16});
  CHECK(cut_runs(Tokens(16, 10), 1000, 1, 2) == Bounds{0, 4, 8, 12, 16});
}

TEST_CASE("cut_runs gives a pipeline no run shorter than pays off, but the last") {
  CHECK(cut_runs(Tokens(16, 10), 1000, 60, 4) == Bounds{0, 6, 12, 16});
}

TEST_CASE("cut_runs keeps a pipeline's runs within the limit of one pass") {
  CHECK(cut_runs(Tokens(4, 10), 20, 100, 8) == Bounds{0, 2, 4});
}

TEST_CASE(
    "cut_runs takes every prompt once, in runs within the limit, and no run that the last had room for") {
  std::mt19937 random(9);
  INFO("seed 9");
  for (int round = 0; round < 200; ++round) {
    Tokens tokens(random() % 40);
    for (std::int64_t& t : tokens)
      t = 1 + static_cast<std::int64_t>(random() % 100);
    const Bounds bounds = cut_runs(tokens, 150, 16, 1);
    REQUIRE(bounds.front() == 0);
    REQUIRE(bounds.back() == tokens.size());
    for (std::size_t run = 0; run + 1 < bounds.size(); ++run) {
      REQUIRE(bounds[run] < bounds[run + 1]);
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(bounds[run]);
      const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(bounds[run + 1]);
      const std::int64_t in_run = std::accumulate(begin, end, std::int64_t{0});
      CHECK(in_run <= 150);
      if (end != tokens.end()) CHECK(in_run + *end > 150);
    }
  }
}

}  // namespace
}  // namespace gemmad
