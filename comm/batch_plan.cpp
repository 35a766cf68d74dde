#include "comm/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace gemmad {

std::vector<int> deal_prompts(std::span<const std::int64_t> tokens, int num_replicas) {
  if (num_replicas < 1) throw std::invalid_argument("deal_prompts: needs a replica");
  std::vector<std::size_t> longest_first(tokens.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a] > tokens[b]; });

  std::vector<int> owners(tokens.size(), 0);
  std::vector<std::int64_t> share(static_cast<std::size_t>(num_replicas), 0);
  for (std::size_t prompt : longest_first) {
    if (tokens[prompt] < 0) throw std::invalid_argument("deal_prompts: a negative token count");
    if (tokens[prompt] == 0) continue;
    const auto least = std::min_element(share.begin(), share.end());
    *least += tokens[prompt];
    owners[prompt] = static_cast<int>(least - share.begin());
  }
  return owners;
}

std::vector<std::size_t> cut_runs(std::span<const std::int64_t> tokens, std::int64_t max_tokens,
                                  std::int64_t min_tokens, int num_stages) {
  std::int64_t limit = max_tokens;
  if (num_stages > 1) {
    const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    const std::int64_t runs = 2 * num_stages;
    limit = std::min(max_tokens, std::max(min_tokens, (total + runs - 1) / runs));
  }
  std::vector<std::size_t> bounds{0};
  std::int64_t in_run = 0;
  for (std::size_t prompt = 0; prompt < tokens.size(); ++prompt) {
    if (prompt > bounds.back() && in_run + tokens[prompt] > limit) {
      bounds.push_back(prompt);
      in_run = 0;
    }
    in_run += tokens[prompt];
  }
  if (!tokens.empty()) bounds.push_back(tokens.size());
  return bounds;
}

}  // namespace gemmad
