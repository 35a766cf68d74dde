// Which ranks turn which prompts' hidden states into features and embeddings. Pure arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/shard_plan.h"
#include "config/processor_config.h"
#include "daemon/job.h"
#include "daemon/job_layout.h"

namespace gemmad {

/// The ranks that can finish what a processor makes of a replica's prompts: all of them, or where the layers
/// are cut into stages the one that computes the last hidden state.
std::vector<int> processor_ranks(const Replica& replica, std::int64_t num_layers);

/// Fills `plans[j].processors` of all jobs that need a processor, from their cuts and replicas: each modality
/// of each prompt goes whole to one rank, the most work first, each to the rank that has least of it. The
/// same on every rank.
void deal_processing(std::span<const Job> jobs, const ShardPlan& plan, const ProcessorConfig& config,
                     const StateSizes& states, std::span<JobPlan> plans);

/// Multiply-adds that a modality of a prompt of `num_tokens` takes: its projection and, with `embeddings`,
/// the connector over `sequence_length` rows.
double processing_cost(const ProcessorConfig& config, const StateSizes& states, Modality modality,
                       std::int64_t num_tokens, bool embeddings, std::int64_t sequence_length);

}  // namespace gemmad
