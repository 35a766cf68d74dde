// gemmactl's arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/ctl/bench/bench_options.h"
#include "daemon/ctl/encode_file/encode_file_options.h"
#include "daemon/ctl/enhance/enhance_options.h"

namespace gemmad {

/// A wrong argument. what() names it and says what is allowed.
class CtlUsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a switch changes; the rest stays.
struct SwitchOptions {
  std::string mode;
  std::string strategy;
  std::optional<std::int64_t> ranks_per_replica;
  std::optional<std::vector<std::int64_t>> encoder_ranks;  // empty: all
};

struct CtlOptions {
  std::string socket;   // the daemon's control socket
  std::string command;  // one of those that ctl_help_text tells of
  double wait_ready_s = 0;
  bool json = false;

  std::vector<std::string> prompts;  // encode
  std::string prompts_file;
  std::vector<std::string> outputs;     // encode, encode-file, bench
  std::vector<std::int64_t> layers;     // the same
  std::vector<std::string> modalities;  // the same
  std::string save_file;
  std::string name;                         // encode, cancel
  std::optional<std::int64_t> deadline_ms;  // as outputs
  std::string prefer;                       // as outputs: "deal", "split", or empty: the daemon chooses
  std::optional<std::int64_t> readers;      // encode
  int rank = 0;                             // encode, encode-file

  std::vector<std::string> texts;  // tokenize
  std::string texts_file;
  bool as_prompts = false;

  std::optional<std::int64_t> job;  // cancel

  SwitchOptions switched;

  bool enhances = false;  // encode
  EnhanceCtlOptions enhance;

  BenchOptions bench;
  EncodeFileOptions encode_file;
};

/// `arguments` without the program's name. Throws CtlUsageError.
CtlOptions parse_ctl_options(std::span<const char* const> arguments);

std::string ctl_help_text();

}  // namespace gemmad
