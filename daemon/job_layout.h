// Where each tensor of a job stands in its block of the output segment. The same on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/route.h"
#include "comm/shard_plan.h"
#include "daemon/job.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// What the layout needs to know of the model.
struct OutputFacts {
  std::int64_t num_layers = 0;   // L; hidden states have indices 0 .. L
  std::int64_t hidden_size = 0;  // D
  DType dtype = DType::kF32;
};

/// Who computes a job.
struct JobPlan {
  Cut cut = Cut::kDeal;
  std::vector<int> replicas;  // of the cut, by prompt
};

/// One delivered tensor: rows of hidden state `hidden_state`, [n, D]. `offset` counts from the start of the
/// block.
struct PlacedTensor {
  std::string name;  // "hidden_states.3", "last_hidden_state"
  std::int64_t hidden_state = 0;
  std::size_t route = 0;  // which it takes to all places
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  Shape shape;
};

/// What takes one route stands together, so that one transfer delivers it.
struct RouteRange {
  std::uint64_t begin = 0;  // bytes from the start of the block
  std::uint64_t end = 0;
};

struct JobLayout {
  std::vector<std::vector<PlacedTensor>> prompts;  // by prompt; empty for one that failed
  std::vector<RouteRange> routes;                  // by route
  std::uint64_t size_bytes = 0;
};

/// Tensors start at multiples of 256 bytes.
JobLayout lay_out(const Job& job, const JobPlan& plan, const RouteTable& routes, const OutputFacts& facts);

}  // namespace gemmad
