// How the daemon stands: what changes only when it is told to change.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "config/daemon_config.h"
#include "config/model_config.h"
#include "config/processor_config.h"
#include "daemon/cost_model.h"
#include "daemon/rank_status.h"

namespace gemmad {

struct DaemonFacts {
  DaemonConfig config;
  TextConfig model;
  bool has_tokenizer = true;
  std::optional<ProcessorConfig> processor;  // of embeddings, where there is one
  std::string collectives;
  std::vector<RankIdentity> ranks;
  bool asleep = false;
  std::optional<CostTable> costs;  // of adaptive mode
  std::chrono::steady_clock::time_point ready_at;
};

}  // namespace gemmad
