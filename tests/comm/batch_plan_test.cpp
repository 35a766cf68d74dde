#include "comm/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

std::vector<std::int64_t> shares(const std::vector<std::int64_t>& tokens, const std::vector<int>& owners,
                                 int num_ranks) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(num_ranks), 0);
  for (std::size_t p = 0; p < tokens.size(); ++p)
    sums[static_cast<std::size_t>(owners[p])] += tokens[p];
  return sums;
}

TEST_CASE("deal_prompts gives one rank everything") {
  CHECK(deal_prompts(std::vector<std::int64_t>{5, 1, 9}, 1) == std::vector<int>{0, 0, 0});
}

TEST_CASE("deal_prompts gives a pair to two ranks") {
  CHECK(deal_prompts(std::vector<std::int64_t>{20, 128}, 2) == std::vector<int>{1, 0});
}

TEST_CASE("deal_prompts breaks ties by order and by rank") {
  CHECK(deal_prompts(std::vector<std::int64_t>{7, 7, 7, 7}, 4) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("deal_prompts leaves ranks idle when prompts are few") {
  CHECK(deal_prompts(std::vector<std::int64_t>{3}, 8) == std::vector<int>{0});
}

TEST_CASE("deal_prompts takes an empty batch") {
  CHECK(deal_prompts({}, 4).empty());
}

TEST_CASE("deal_prompts gives prompts without tokens to rank 0 and counts them nowhere") {
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
    const int num_ranks = 1 + static_cast<int>(random() % 8);
    std::vector<std::int64_t> tokens(random() % 40);
    for (std::int64_t& t : tokens)
      t = 1 + static_cast<std::int64_t>(random() % 1024);
    const std::vector<std::int64_t> sums = shares(tokens, deal_prompts(tokens, num_ranks), num_ranks);
    const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    const std::int64_t longest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
    // No deal is better than the mean share or the longest prompt; greedy exceeds the mean by less than one
    // prompt.
    CHECK(*std::max_element(sums.begin(), sums.end()) <= total / num_ranks + longest);
  }
}

}  // namespace
}  // namespace gemmad
