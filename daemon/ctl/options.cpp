#include "daemon/ctl/options.h"

#include <array>
#include <charconv>
#include <functional>
#include <map>

#include "config/daemon_config.h"

namespace gemmad {

namespace {

constexpr std::array kCommands = {"encode",  "tokenize", "health",   "info",
                                  "metrics", "cancel",   "shutdown", "help"};

template <typename Number>
Number to_number(const std::string& option, const std::string& text, Number min, Number max) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max)) {
    throw CtlUsageError(option + " is '" + text.substr(0, 64) + "'; it must be a number from " +
                        std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (std::size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', start)) {
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  parts.push_back(text.substr(start));
  return parts;
}

using SetOption = std::function<void(CtlOptions&, const std::string& value)>;

const std::map<std::string, SetOption>& options_with_value() {
  static const std::map<std::string, SetOption> options = {
      {"--socket", [](CtlOptions& o, const std::string& v) { o.socket = v; }},
      {"--wait-ready",
       [](CtlOptions& o, const std::string& v) {
         o.wait_ready_s = to_number("--wait-ready", v, 0.0, 86400.0);
       }},
      {"--prompt", [](CtlOptions& o, const std::string& v) { o.prompts.push_back(v); }},
      {"--prompts-file", [](CtlOptions& o, const std::string& v) { o.prompts_file = v; }},
      {"--outputs", [](CtlOptions& o, const std::string& v) { o.outputs = split_at_commas(v); }},
      {"--layers",
       [](CtlOptions& o, const std::string& v) {
         for (const std::string& layer : split_at_commas(v)) {
           o.layers.push_back(to_number<std::int64_t>("--layers", layer, 0, 100'000));
         }
       }},
      {"--save", [](CtlOptions& o, const std::string& v) { o.save_file = v; }},
      {"--name", [](CtlOptions& o, const std::string& v) { o.name = v; }},
      {"--deadline-ms",
       [](CtlOptions& o, const std::string& v) {
         o.deadline_ms = to_number<std::int64_t>("--deadline-ms", v, 1, 86'400'000);
       }},
      {"--rank", [](CtlOptions& o, const std::string& v) { o.rank = to_number("--rank", v, 0, 1'000'000); }},
      {"--text", [](CtlOptions& o, const std::string& v) { o.texts.push_back(v); }},
      {"--file", [](CtlOptions& o, const std::string& v) { o.texts_file = v; }},
      {"--job", [](CtlOptions& o,
                   const std::string& v) { o.job = to_number<std::int64_t>("--job", v, 1, INT64_MAX); }},
  };
  return options;
}

void take_command(CtlOptions& options, const std::string& word) {
  for (const char* command : kCommands) {
    if (word == command) {
      if (!options.command.empty())
        throw CtlUsageError("two commands: '" + options.command + "' and '" + word + "'");
      options.command = word;
      return;
    }
  }
  throw CtlUsageError("unknown argument '" + word.substr(0, 64) + "'; see gemmactl help");
}

}  // namespace

CtlOptions parse_ctl_options(std::span<const char* const> arguments) {
  CtlOptions options;
  options.socket = default_socket_path();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string word = arguments[i];
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); word.rfind("--", 0) == 0 && equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    const auto option = options_with_value().find(word);
    if (option != options_with_value().end()) {
      if (!value && i + 1 >= arguments.size()) throw CtlUsageError(word + " needs a value");
      option->second(options, value ? *value : arguments[++i]);
    } else if (word == "--json" && !value) {
      options.json = true;
    } else if (word == "--as-prompts" && !value) {
      options.as_prompts = true;
    } else if (word == "--help" || word == "-h") {
      options.command = "help";
      return options;
    } else {
      take_command(options, word);
    }
  }
  if (options.command.empty()) throw CtlUsageError("no command; see gemmactl help");
  return options;
}

std::string ctl_help_text() {
  return "gemmactl " GEMMAD_VERSION
         ": talks to a running gemmad.\n"
         "\n"
         "  gemmactl [--socket PATH] [--wait-ready SECONDS] COMMAND [OPTIONS]\n"
         "\n"
         "  encode [--prompt TEXT]... [--prompts-file FILE.json] [--outputs "
         "hidden_states,last_hidden_state]\n"
         "         [--layers 0,8] [--save OUT.safetensors] [--name NAME] [--deadline-ms MS] [--rank R] "
         "[--json]\n"
         "             encodes prompts; FILE.json is a list of strings or of {\"input_ids\": [...]}. Saved "
         "are\n"
         "             prompt.I.input_ids and prompt.I.TENSOR, read from rank R of this host (default 0).\n"
         "  tokenize [--text TEXT]... [--file FILE.jsonl] [--as-prompts] [--json]\n"
         "             ids of each text as it is; --as-prompts: as encode would have them. FILE.jsonl holds "
         "a string\n"
         "             or an object with \"text\" a line. --json prints a list of ids a line.\n"
         "  health, info, metrics\n"
         "             state of every rank; what is loaded and how; counters in Prometheus' format\n"
         "  cancel (--job N | --name NAME)\n"
         "             gives up an encode that waits\n"
         "  shutdown   finishes what waits, then stops the daemon; returns when it has\n"
         "\n"
         "  --socket PATH         default: " +
         default_socket_path() +
         "\n"
         "  --wait-ready SECONDS  waits until the daemon answers\n"
         "  --json                output for programs\n"
         "\n"
         "Exit status: 0 everything asked for was delivered, 1 something was not, 2 wrong arguments.\n";
}

}  // namespace gemmad
