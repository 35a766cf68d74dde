// The forward passes over this rank's share of a batch, straight into the output segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/route.h"
#include "comm/shard_plan.h"
#include "daemon/job.h"
#include "daemon/job_layout.h"
#include "daemon/model/part_links.h"
#include "daemon/model/text_encoder.h"
#include "kernels/ops.h"

namespace gemmad {

/// One job of a batch as this rank runs it. Views; nothing is owned.
struct JobInHand {
  const Job* job = nullptr;
  const JobPlan* plan = nullptr;
  const JobLayout* layout = nullptr;
  std::span<std::byte> block;  // its reserved space in the segment that this rank writes to
};

/// This rank's part in the replica that it belongs to under one cut. Nothing is owned.
struct PartInHand {
  Cut cut = Cut::kDeal;
  int replica = 0;
  int num_stages = 1;  // of its pipeline
  TextEncoder* encoder = nullptr;
  PartLinks* links = nullptr;
};

/// Computes this rank's part of every prompt that goes to its replica, and writes the tensors whose writer it
/// is to their places. Prompts go in as many forward passes as the encoder's limit asks for, or as keep a
/// pipeline busy: the same ones on all ranks of the replica. Returns the number of tokens. Blocks until all
/// is written. Throws what encoder and links throw; the blocks' contents are then undefined.
std::int64_t compute_part(std::span<const JobInHand> jobs, const PartInHand& part, const RouteTable& routes,
                          int rank, Ops& ops);

}  // namespace gemmad
