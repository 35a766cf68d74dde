// What a job costs, dealt or split: measured at start, so that adaptive mode can choose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/shard_plan.h"

namespace gemmad {

/// Times of a forward pass by its number of tokens, a straight line between the points and beyond the last
/// ones. Plain bytes, so that ranks can exchange it.
struct CostTable {
  static constexpr std::size_t kPoints = 3;

  std::array<std::int64_t, kPoints> tokens{};  // positive, none less than the one before
  std::array<double, kPoints> whole_ms{};  // of one rank with the whole model, while the others do the same
  std::array<double, kPoints> split_ms{};  // of all ranks together, each with its slice

  double whole(std::int64_t num_tokens) const { return at(whole_ms, num_tokens); }
  double split(std::int64_t num_tokens) const { return at(split_ms, num_tokens); }

 private:
  double at(const std::array<double, kPoints>& ms, std::int64_t num_tokens) const;
};

/// The cut that has prompts of `tokens` done first: dealt to `num_replicas`, the slowest one counts.
Cut cheaper_cut(const CostTable& costs, std::span<const std::int64_t> tokens, int num_replicas);

/// The slower of two measurements at every point.
CostTable slower(const CostTable& a, const CostTable& b);

}  // namespace gemmad
