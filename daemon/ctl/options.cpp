#include "daemon/ctl/options.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "config/daemon_config.h"
#include "daemon/ctl/option_values.h"

namespace gemmad {

namespace {

constexpr std::array kCommands = {"encode", "encode-file", "enhance",  "bench",  "tokenize",
                                  "health", "info",        "metrics",  "cancel", "switch",
                                  "sleep",  "wake",        "shutdown", "help"};
// What a command takes beside --socket, --wait-ready and --json, and beside the options that it has for
// itself.
const std::map<std::string, std::vector<std::string>>& options_of_commands() {
  static const std::map<std::string, std::vector<std::string>> options = {
      {"encode",
       {"--prompt", "--prompts-file", "--outputs", "--layers", "--modalities", "--save", "--name",
        "--deadline-ms", "--rank", "--prefer", "--readers", "--enhance"}},
      {"encode-file", {"--outputs", "--layers", "--prefer", "--deadline-ms", "--rank", "--overwrite"}},
      {"enhance", {"--name", "--readers", "--deadline-ms"}},
      {"bench", {"--outputs", "--layers", "--modalities", "--prefer", "--deadline-ms"}},
      {"tokenize", {"--text", "--file", "--as-prompts"}},
      {"cancel", {"--job", "--name"}},
      {"switch", {"--mode", "--strategy", "--ranks-per-replica", "--encoder-ranks"}},
  };
  return options;
}

void set_encoder_ranks(CtlOptions& options, const std::string& value) {
  options.switched.encoder_ranks.emplace();
  if (value == "all") return;
  for (const std::string& rank : split_at_commas(value))
    options.switched.encoder_ranks->push_back(to_number<std::int64_t>("--encoder-ranks", rank, 0, 9999));
}

void set_prefer(CtlOptions& options, const std::string& value) {
  if (value != "deal" && value != "split") {
    throw CtlUsageError("--prefer is '" + value.substr(0, 64) + "'; it must be deal or split");
  }
  options.prefer = value;
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
      {"--modalities", [](CtlOptions& o, const std::string& v) { o.modalities = split_at_commas(v); }},
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
      {"--prefer", set_prefer},
      {"--readers",
       [](CtlOptions& o, const std::string& v) {
         o.readers = to_number<std::int64_t>("--readers", v, 1, 1'000'000);
       }},
      {"--mode", [](CtlOptions& o, const std::string& v) { o.switched.mode = v; }},
      {"--strategy", [](CtlOptions& o, const std::string& v) { o.switched.strategy = v; }},
      {"--ranks-per-replica",
       [](CtlOptions& o, const std::string& v) {
         o.switched.ranks_per_replica = to_number<std::int64_t>("--ranks-per-replica", v, 0, 9999);
       }},
      {"--encoder-ranks", set_encoder_ranks},
      {"--rank", [](CtlOptions& o, const std::string& v) { o.rank = to_number("--rank", v, 0, 1'000'000); }},
      {"--text", [](CtlOptions& o, const std::string& v) { o.texts.push_back(v); }},
      {"--file", [](CtlOptions& o, const std::string& v) { o.texts_file = v; }},
      {"--job", [](CtlOptions& o,
                   const std::string& v) { o.job = to_number<std::int64_t>("--job", v, 1, INT64_MAX); }},
  };
  return options;
}

bool has_value(const std::string& option) {
  return options_with_value().contains(option) || is_bench_option(option) || is_encode_file_option(option) ||
         is_enhance_option(option);
}

void set_value(CtlOptions& options, const std::string& option, const std::string& value) {
  if (const auto general = options_with_value().find(option); general != options_with_value().end()) {
    return general->second(options, value);
  }
  if (is_encode_file_option(option)) return set_encode_file_option(options.encode_file, option, value);
  // Both have a seed, and the command may be named later.
  if (is_enhance_option(option)) set_enhance_option(options.enhance, option, value);
  if (is_bench_option(option)) set_bench_option(options.bench, option, value);
}

/// Whether `option` is one without a value; sets it then.
bool set_flag(CtlOptions& options, const std::string& option) {
  if (option == "--json") {
    options.json = true;
  } else if (option == "--as-prompts") {
    options.as_prompts = true;
  } else if (option == "--overwrite") {
    options.encode_file.overwrites = true;
  } else if (option == "--enhance") {
    options.enhances = true;
  } else if (is_enhance_flag(option)) {
    set_enhance_flag(options.enhance, option);
  } else {
    return false;
  }
  return true;
}

template <typename Names>
bool is_among(const Names& names, const std::string& option) {
  return std::find(names.begin(), names.end(), option) != names.end();
}

/// The command, or what it is about.
void take_word(CtlOptions& options, const std::string& word) {
  if (options.command == "encode-file" && options.encode_file.input.empty() && word.rfind("--", 0) != 0) {
    options.encode_file.input = word;
    return;
  }
  if (options.command == "enhance" && !options.enhance.prompt && word.rfind("--", 0) != 0) {
    options.enhance.prompt = word;
    return;
  }
  if (!is_among(kCommands, word))
    throw CtlUsageError("unknown argument '" + word.substr(0, 64) + "'; see gemmactl help");
  if (!options.command.empty())
    throw CtlUsageError("two commands: '" + options.command + "' and '" + word + "'");
  options.command = word;
}

bool takes(const CtlOptions& options, const std::string& option) {
  const std::string& command = options.command;
  if (option == "--socket" || option == "--wait-ready" || option == "--json") return true;
  if (command == "bench" && is_bench_option(option)) return true;
  if (command == "encode-file" && is_encode_file_option(option)) return true;
  const bool enhances = command == "enhance" || (command == "encode" && options.enhances);
  if (enhances && (is_enhance_option(option) || is_enhance_flag(option))) return true;
  const auto own = options_of_commands().find(command);
  return own != options_of_commands().end() && is_among(own->second, option);
}

/// Who is mistaken about an option should hear of it before anything is done.
void check_use(const CtlOptions& options, const std::vector<std::string>& given) {
  for (const std::string& option : given) {
    if (takes(options, option)) continue;
    const bool of_enhance = is_enhance_option(option) || is_enhance_flag(option);
    const std::string without = options.command == "encode" && of_enhance ? " without --enhance" : "";
    throw CtlUsageError(option + " is no option of " + options.command + without + "; see gemmactl help");
  }
  if (is_among(given, "--name") && options.name.empty()) throw CtlUsageError("--name needs a name");
  if (options.command == "encode" && options.prompts.empty() && options.prompts_file.empty())
    throw CtlUsageError("encode needs --prompt TEXT or --prompts-file FILE.json");
  if (options.command == "tokenize" && options.texts.empty() && options.texts_file.empty())
    throw CtlUsageError("tokenize needs --text TEXT or --file FILE.jsonl");
}

}  // namespace

CtlOptions parse_ctl_options(std::span<const char* const> arguments) {
  CtlOptions options;
  options.socket = default_socket_path();
  std::vector<std::string> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string word = arguments[i];
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); word.rfind("--", 0) == 0 && equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    if (word.rfind("--", 0) == 0) given.push_back(word);
    if (has_value(word)) {
      if (!value && i + 1 >= arguments.size()) throw CtlUsageError(word + " needs a value");
      if (!value) value = arguments[++i];
      set_value(options, word, *value);
    } else if (word == "--help" || word == "-h") {
      options.command = "help";
      return options;
    } else if (value || !set_flag(options, word)) {
      take_word(options, word);
    }
  }
  if (options.command.empty()) throw CtlUsageError("no command; see gemmactl help");
  check_use(options, given);
  return options;
}

std::string ctl_help_text() {
  return "gemmactl " GEMMAD_VERSION
         ": talks to a running gemmad.\n"
         "\n"
         "  gemmactl [--socket PATH] [--wait-ready SECONDS] COMMAND [OPTIONS]\n"
         "\n"
         "  encode [--prompt TEXT]... [--prompts-file FILE.json]\n"
         "         [--outputs hidden_states,last_hidden_state,features,embeddings] [--layers 0,8]\n"
         "         [--modalities video,audio] [--save OUT.safetensors] [--name NAME] [--deadline-ms MS] "
         "[--rank "
         "R]\n"
         "         [--prefer deal|split] [--readers N] [--enhance [OPTIONS OF enhance]] [--json]\n"
         "             encodes prompts; FILE.json is a list of strings or of {\"input_ids\": [...]}. Saved "
         "are\n"
         "             prompt.I.input_ids and prompt.I.TENSOR, read from rank R of this host (default 0).\n"
         "             Without --name and --readers nobody else is expected to come for the result.\n"
         "             --prefer: how adaptive is to spread it; --readers: how many will come for it at each "
         "segment.\n"
         "             --enhance: the first prompt is rewritten before, and the text printed.\n" +
         enhance_help_text() +
         "  encode-file IN.jsonl --out DIR [OPTIONS]\n"
         "             encodes a data set of prompts, each into a file of its own; see below\n"
         "  bench [OPTIONS]\n"
         "             sends requests and measures them; see below\n"
         "  tokenize [--text TEXT]... [--file FILE.jsonl] [--as-prompts] [--json]\n"
         "             ids of each text as it is; --as-prompts: as encode would have them. FILE.jsonl holds "
         "a string\n"
         "             or an object with \"text\" a line. --json prints a list of ids a line.\n"
         "  health, info, metrics\n"
         "             what rank 0 last heard of every rank; what is loaded and how; counters in Prometheus' "
         "format\n"
         "  cancel (--job N | --name NAME)\n"
         "             gives up an encode that waits, or an enhancement\n"
         "  switch [--mode sharded|batch_parallel|adaptive] [--strategy tensor|layer] [--ranks-per-replica "
         "N]\n"
         "         [--encoder-ranks 0,1|all]\n"
         "             lays the model out anew over the ranks; what is not named stays. Returns when it is "
         "done\n"
         "  sleep, wake\n"
         "             gives the memory of the weights back; takes it again, as the next encode does too\n"
         "  shutdown   finishes what waits, then stops the daemon; returns when it has\n"
         "\n"
         "  --socket PATH         default: " +
         default_socket_path() +
         "\n"
         "  --wait-ready SECONDS  waits until the daemon answers\n"
         "  --json                output for programs\n"
         "\n" +
         encode_file_help_text() + "\n" + bench_help_text() +
         "\n"
         "Exit status: 0 everything asked for was delivered, 1 something was not, 2 wrong arguments; 3 see "
         "encode-file.\n";
}

}  // namespace gemmad
