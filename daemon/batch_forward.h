// The forward pass over this rank's prompts of a batch, straight into the output segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/job.h"
#include "daemon/job_layout.h"
#include "daemon/model/text_encoder.h"
#include "kernels/ops.h"

namespace gemmad {

/// One job of a batch as this rank runs it. Views; nothing is owned.
struct JobInHand {
  const Job* job = nullptr;
  const JobLayout* layout = nullptr;
  std::span<const int> owners;  // of its prompts
  std::span<std::byte> block;   // its reserved space on this rank
};

/// Computes every prompt that `rank` owns and writes its tensors to their places. Prompts go in as many
/// forward passes as the encoder's limit asks for. Returns the number of tokens computed. Blocks until all is
/// written. Throws what the encoder throws; the blocks' contents are then undefined.
std::int64_t compute_own_prompts(std::span<const JobInHand> jobs, int rank, TextEncoder& encoder, Ops& ops);

}  // namespace gemmad
