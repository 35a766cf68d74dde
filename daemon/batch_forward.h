// The forward passes over this rank's share of a batch, straight into the output segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/route.h"
#include "comm/shard_plan.h"
#include "daemon/device_delivery.h"
#include "daemon/job.h"
#include "daemon/job_layout.h"
#include "daemon/model/ltx/embeddings_processor.h"
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
  TextEncoder* encoder = nullptr;
  PartLinks* links = nullptr;
  EmbeddingsProcessor* processor = nullptr;  // null where there is none
  int processor_rank = 0;                    // whose units it works on: this rank, or that of the last stage
};

/// How a batch is computed and delivered under one cut. Nothing is owned.
struct CutInHand {
  Cut cut = Cut::kDeal;
  std::span<const Replica> replicas;
  std::int64_t max_batch_tokens = 0;
  const PartInHand* part = nullptr;    // null where this rank has none
  DeviceDelivery* delivery = nullptr;  // null where results travel afterwards, between segments
  const RouteTable* routes = nullptr;
  int rank = 0;
};

/// Computes this rank's part of every prompt that goes to its replica, and writes the tensors whose writer it
/// is to their places; with a delivery it also hands them on to, and takes from, other ranks as they come.
/// Prompts go in as many forward passes as the limit asks for, or as keep a pipeline busy: every rank knows
/// those of all replicas. Returns the number of tokens computed. Blocks until all is written. Throws what
/// encoder, links and delivery throw; the blocks' contents are then undefined.
std::int64_t compute_cut(std::span<const JobInHand> jobs, const CutInHand& cut, Ops& ops);

}  // namespace gemmad
