// What encode-file needs to know of the daemon, and what its files depend on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/ctl/encode_file/input_prompt.h"
#include "daemon/ctl/local_ranks.h"
#include "daemon/ctl/options.h"

namespace gemmad {

struct EncodeTarget {
  std::vector<std::string> outputs;  // to ask for
  std::int64_t batch = 0;            // prompts of a request
  InputLimits limits;
  LocalRank reads;                 // whose results are saved
  std::vector<LocalRank> lets_go;  // of the other segments here, each once: their results must be taken too
  std::size_t num_elsewhere = 0;   // ranks on other hosts
  nlohmann::json settings;         // all that a file's content depends on, but for its prompt
};

/// From the reply to `info`. Throws CtlUsageError for options that this daemon cannot serve, ClientError when
/// the reply lacks what is needed.
EncodeTarget encode_target(const nlohmann::json& info, const CtlOptions& options);

/// Where two settings differ, for people: "/model/path is \"a\" and not \"b\"; ..."; `there` first. Empty
/// when they do not.
std::string settings_difference(const nlohmann::json& there, const nlohmann::json& here);

}  // namespace gemmad
