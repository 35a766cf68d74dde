// What gemmad is asked to do when it starts.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gemmad {

/// A wrong argument. what() names it and says what is allowed.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CommandLine {
  enum class Action { kRun, kHelp, kVersion, kCheckConfig, kPrintConfig, kPrintSchema };
  Action action = Action::kRun;
  std::optional<std::filesystem::path> config_file;
  std::vector<std::string> overrides;  // "key=value", in order
};

/// `arguments` without the program's name. Throws UsageError.
CommandLine parse_command_line(std::span<const char* const> arguments);

/// The text of --help.
std::string help_text();

}  // namespace gemmad
