// Who computes which prompt of a batch, and in what runs. Pure arithmetic: every rank comes to the same plan
// from the same input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gemmad {

/// Deals prompts to replicas so that the largest share is small: the longest prompt first, each to the
/// replica with the fewest tokens so far (the lowest of those). Returns the replica of each prompt, in the
/// order of `tokens`. Prompts of 0 tokens (nothing to compute) belong to replica 0. Throws
/// std::invalid_argument for fewer than 1 replica or a negative count. At most 4/3 of the best possible
/// largest share (Graham 1969, longest processing time first).
std::vector<int> deal_prompts(std::span<const std::int64_t> tokens, int num_replicas);

/// Cuts prompts, in their order, into runs that one forward pass takes: as few as hold `max_tokens` each. For
/// a pipeline of several stages the runs are about half a stage's share of all tokens, so that the stages
/// work at the same time, but not under `min_tokens`, below which a shorter run costs as much. Returns the
/// index of each run's first prompt, and the number of prompts at the end; {0} for no prompts. A single
/// prompt over `max_tokens` is a run of its own.
std::vector<std::size_t> cut_runs(std::span<const std::int64_t> tokens, std::int64_t max_tokens,
                                  std::int64_t min_tokens, int num_stages);

}  // namespace gemmad
