#include "comm/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace gemmad {

std::vector<int> deal_prompts(std::span<const std::int64_t> tokens, int num_ranks) {
  if (num_ranks < 1) throw std::invalid_argument("deal_prompts: needs a rank");
  std::vector<std::size_t> longest_first(tokens.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a] > tokens[b]; });

  std::vector<int> owners(tokens.size(), 0);
  std::vector<std::int64_t> share(static_cast<std::size_t>(num_ranks), 0);
  for (std::size_t prompt : longest_first) {
    if (tokens[prompt] < 0) throw std::invalid_argument("deal_prompts: a negative token count");
    if (tokens[prompt] == 0) continue;
    const auto least = std::min_element(share.begin(), share.end());
    *least += tokens[prompt];
    owners[prompt] = static_cast<int>(least - share.begin());
  }
  return owners;
}

}  // namespace gemmad
