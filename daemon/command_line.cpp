#include "daemon/command_line.h"

#include "config/daemon_config.h"
#include "daemon/protocol.h"

namespace gemmad {

namespace {

/// "--name value" or "--name=value": the value if `arguments[i]` is that option; moves `i` to the last one
/// used.
std::optional<std::string> option_value(std::span<const char* const> arguments, std::size_t& i,
                                        const std::string& option) {
  const std::string argument = arguments[i];
  if (argument.rfind(option + "=", 0) == 0) return argument.substr(option.size() + 1);
  if (argument != option) return std::nullopt;
  if (i + 1 >= arguments.size()) throw UsageError(option + " needs a value");
  return std::string(arguments[++i]);
}

}  // namespace

CommandLine parse_command_line(std::span<const char* const> arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      line.action = CommandLine::Action::kHelp;
    } else if (argument == "--version") {
      line.action = CommandLine::Action::kVersion;
    } else if (argument == "--check-config") {
      line.action = CommandLine::Action::kCheckConfig;
    } else if (argument == "--print-config") {
      line.action = CommandLine::Action::kPrintConfig;
    } else if (argument == "--print-schema") {
      line.action = CommandLine::Action::kPrintSchema;
    } else if (const auto file = option_value(arguments, i, "--config")) {
      line.config_file = *file;
    } else if (const auto model = option_value(arguments, i, "--model")) {
      line.overrides.push_back("model=" + *model);
    } else if (const auto socket = option_value(arguments, i, "--socket")) {
      line.overrides.push_back("socket=" + *socket);
    } else if (const auto setting = option_value(arguments, i, "--set")) {
      line.overrides.push_back(*setting);
    } else {
      throw UsageError("unknown argument '" + argument.substr(0, 100) + "'; see gemmad --help");
    }
  }
  return line;
}

std::string help_text() {
  return "gemmad " GEMMAD_VERSION
         ": runs the Gemma text encoder as a service, one rank per device.\n"
         "\n"
         "  mpirun -n RANKS gemmad --model DIR [--config FILE] [--socket PATH] [--set KEY=VALUE]...\n"
         "\n"
         "  --config FILE    settings in JSON; what follows overrides it\n"
         "  --model DIR      the same as --set model=DIR\n"
         "  --socket PATH    the same as --set socket=PATH\n"
         "  --set KEY=VALUE  one setting\n"
         "  --check-config   check the settings, say whether they hold, and leave\n"
         "  --print-config   print the settings in effect as JSON, and leave\n"
         "  --print-schema   print the JSON schema of the config file, and leave\n"
         "  --version, --help\n"
         "\n"
         "Rank 0 listens on the control socket; rank R hands out results on SOCKET.reader-R.\n"
         "SIGTERM or SIGINT finishes what waits and leaves with 0; a second one ends at once.\n"
         "Exit status: 0 stopped as asked, 1 could not start, 2 wrong arguments or settings, 3 failed while "
         "running.\n"
         "\n"
         "Settings:\n" +
         config_help() +
         "\nRequests on the control socket (JSON objects, one a line, each with \"id\" and \"op\"):\n" +
         protocol_help();
}

}  // namespace gemmad
