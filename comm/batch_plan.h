// Who computes which prompt of a batch. Pure arithmetic: every rank comes to the same plan from the same
// input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gemmad {

/// Deals prompts to ranks so that the largest share is small: the longest prompt first, each to the rank with
/// the fewest tokens so far (the lowest of those). Returns the owner of each prompt, in the order of
/// `tokens`. Prompts of 0 tokens (nothing to compute) belong to rank 0. Throws std::invalid_argument for
/// fewer than 1 rank or a negative count. At most 4/3 of the best possible largest share (Graham 1969,
/// longest processing time first).
std::vector<int> deal_prompts(std::span<const std::int64_t> tokens, int num_ranks);

}  // namespace gemmad
