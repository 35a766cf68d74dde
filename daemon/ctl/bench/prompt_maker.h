// The prompts that a benchmark sends.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace gemmad {

/// Makes prompts of random ids, the same for the same seed and request number. Thread-safe.
class PromptMaker {
 public:
  /// A request gets a prompt of each of `tokens` (at least 1 each), its ids below `vocab_size`. Throws
  /// std::invalid_argument when the vocabulary has no BOS.
  PromptMaker(std::vector<std::int64_t> tokens, std::int64_t vocab_size, std::uint64_t seed);

  /// The field `prompts` of request `number`: BOS first in each.
  nlohmann::json prompts(std::int64_t number) const;

 private:
  std::vector<std::int64_t> tokens_;
  std::int64_t vocab_size_;
  std::uint64_t seed_;
};

}  // namespace gemmad
