#include "daemon/cost_model.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/batch_plan.h"

namespace gemmad {

double CostTable::at(const std::array<double, kPoints>& ms, std::int64_t num_tokens) const {
  std::size_t right = 1;
  while (right + 1 < kPoints && tokens[right] < num_tokens)
    ++right;
  const std::size_t left = right - 1;
  if (tokens[left] == tokens[right])
    return ms[left] * static_cast<double>(num_tokens) / static_cast<double>(tokens[left]);
  const double share =
      static_cast<double>(num_tokens - tokens[left]) / static_cast<double>(tokens[right] - tokens[left]);
  return std::max(0.0, ms[left] + share * (ms[right] - ms[left]));
}

Cut cheaper_cut(const CostTable& costs, std::span<const std::int64_t> tokens, int num_replicas) {
  const std::vector<int> dealt = deal_prompts(tokens, num_replicas);
  std::vector<std::int64_t> shares(static_cast<std::size_t>(num_replicas), 0);
  for (std::size_t prompt = 0; prompt < tokens.size(); ++prompt)
    shares[static_cast<std::size_t>(dealt[prompt])] += tokens[prompt];
  const std::int64_t largest = *std::max_element(shares.begin(), shares.end());
  const std::int64_t all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  return costs.split(all) < costs.whole(largest) ? Cut::kSplit : Cut::kDeal;
}

CostTable slower(const CostTable& a, const CostTable& b) {
  CostTable result = a;
  for (std::size_t i = 0; i < CostTable::kPoints; ++i) {
    result.whole_ms[i] = std::max(a.whole_ms[i], b.whole_ms[i]);
    result.split_ms[i] = std::max(a.split_ms[i], b.split_ms[i]);
  }
  return result;
}

}  // namespace gemmad
