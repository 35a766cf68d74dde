// Where each tensor of a job stands in its block of the output segment. The same on every rank.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
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
  std::array<std::int64_t, 2> processor_widths{};  // C, by Modality; of no use without a processor
  std::int64_t sequence_length = 0;                // S: rows of embeddings
};

/// Who computes a job.
struct JobPlan {
  Cut cut = Cut::kDeal;
  std::vector<int> replicas;                   // of the cut, by prompt
  std::vector<std::array<int, 2>> processors;  // ranks, by prompt and Modality; -1: nothing of it is wanted
};

enum class OutputKind : std::uint8_t { kHiddenState, kFeatures, kEmbeddings };

/// What a tensor holds. In the order in which they are computed.
struct OutputId {
  OutputKind kind = OutputKind::kHiddenState;
  std::int64_t index = 0;  // of the hidden state, or the Modality

  auto operator<=>(const OutputId&) const = default;
};

/// One delivered tensor: hidden state or features [n, width], embeddings [S, width]. `offset` counts from the
/// start of the block.
struct PlacedTensor {
  std::string name;  // "hidden_states.3", "last_hidden_state", "features.video", "embeddings.audio"
  OutputId output;
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
  std::vector<std::vector<PlacedTensor>> prompts;  // by prompt; empty for one that is not computed
  std::vector<RouteRange> routes;                  // by route
  std::uint64_t size_bytes = 0;
};

/// Tensors start at multiples of 256 bytes.
JobLayout lay_out(const Job& job, const JobPlan& plan, const RouteTable& routes, const OutputFacts& facts);

}  // namespace gemmad
