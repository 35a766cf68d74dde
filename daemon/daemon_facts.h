// How the daemon stands: what changes only when it is told to change.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/daemon_config.h"
#include "config/model_config.h"
#include "config/processor_config.h"
#include "daemon/cost_model.h"
#include "daemon/rank_status.h"

namespace gemmad {

/// The model that rewrites prompts.
struct EnhancerFacts {
  std::string model;  // its directory
  std::string type;   // "gemma3_text", "gemma4" ...: of its config.json
  std::int64_t vocab_size = 0;
  bool has_vision = false;
};

struct DaemonFacts {
  DaemonConfig config;
  TextConfig model;
  bool has_tokenizer = true;
  std::optional<ProcessorConfig> processor;  // of embeddings, where there is one
  std::optional<EnhancerFacts> enhancer;     // none: prompts are not rewritten
  std::string collectives;
  std::vector<RankIdentity> ranks;
  bool asleep = false;
  std::optional<CostTable> costs;  // of adaptive mode
  std::chrono::steady_clock::time_point ready_at;
};

}  // namespace gemmad
