// gemmactl's arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gemmad {

/// A wrong argument. what() names it and says what is allowed.
class CtlUsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CtlOptions {
  std::string socket;   // the daemon's control socket
  std::string command;  // "encode", "tokenize", "health", "info", "metrics", "cancel", "shutdown", "help"
  double wait_ready_s = 0;
  bool json = false;

  std::vector<std::string> prompts;  // encode
  std::string prompts_file;
  std::vector<std::string> outputs;
  std::vector<std::int64_t> layers;
  std::string save_file;
  std::string name;  // encode, cancel
  std::optional<std::int64_t> deadline_ms;
  int rank = 0;

  std::vector<std::string> texts;  // tokenize
  std::string texts_file;
  bool as_prompts = false;

  std::optional<std::int64_t> job;  // cancel
};

/// `arguments` without the program's name. Throws CtlUsageError.
CtlOptions parse_ctl_options(std::span<const char* const> arguments);

std::string ctl_help_text();

}  // namespace gemmad
