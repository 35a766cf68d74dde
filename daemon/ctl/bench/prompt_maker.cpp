#include "daemon/ctl/bench/prompt_maker.h"

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <utility>

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::int64_t kBos = 2;

std::mt19937 generator(std::uint64_t seed, std::int64_t number) {
  const auto n = static_cast<std::uint64_t>(number);
  std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32)};
  return std::mt19937(words);
}

}  // namespace

PromptMaker::PromptMaker(std::vector<std::int64_t> tokens, std::int64_t vocab_size, std::uint64_t seed)
    : tokens_(std::move(tokens)), vocab_size_(vocab_size), seed_(seed) {
  if (vocab_size <= kBos) {
    throw std::invalid_argument("a vocabulary of " + std::to_string(vocab_size) + " ids has no BOS (" +
                                std::to_string(kBos) + ")");
  }
}

json PromptMaker::prompts(std::int64_t number) const {
  std::mt19937 random = generator(seed_, number);
  std::uniform_int_distribution<std::int64_t> any_id(0, vocab_size_ - 1);
  json prompts = json::array();
  for (const std::int64_t num_tokens : tokens_) {
    json ids = json::array({kBos});
    for (std::int64_t i = 1; i < num_tokens; ++i)
      ids.push_back(any_id(random));
    prompts.push_back({{"input_ids", std::move(ids)}});
  }
  return prompts;
}

}  // namespace gemmad
