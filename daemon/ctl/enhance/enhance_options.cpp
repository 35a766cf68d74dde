#include "daemon/ctl/enhance/enhance_options.h"

#include <functional>
#include <map>

#include "daemon/ctl/option_values.h"

namespace gemmad {

namespace {

using SetOption = std::function<void(EnhanceCtlOptions&, const std::string& value)>;

// What the daemon bounds by its model and its config it refuses itself.
constexpr std::int64_t kMost = 1'000'000'000;

const std::map<std::string, SetOption>& options_with_value() {
  using O = EnhanceCtlOptions;
  using Text = const std::string&;
  static const std::map<std::string, SetOption> options = {
      {"--image", [](O& o, Text v) { o.image_file = v; }},
      {"--system-prompt", [](O& o, Text v) { o.system_prompt_file = v; }},
      {"--max-new-tokens",
       [](O& o, Text v) { o.max_new_tokens = to_number<std::int64_t>("--max-new-tokens", v, 1, kMost); }},
      {"--seed", [](O& o, Text v) { o.seed = to_number<std::uint64_t>("--seed", v, 0, UINT64_MAX); }},
      {"--temperature", [](O& o, Text v) { o.temperature = to_number("--temperature", v, 0.0, 100.0); }},
      {"--top-k", [](O& o, Text v) { o.top_k = to_number<std::int64_t>("--top-k", v, 0, kMost); }},
      {"--top-p", [](O& o, Text v) { o.top_p = to_number("--top-p", v, 0.0, 1.0); }},
      {"--no-repeat-ngram",
       [](O& o, Text v) { o.no_repeat_ngram = to_number<std::int64_t>("--no-repeat-ngram", v, 0, 64); }},
  };
  return options;
}

const std::map<std::string, bool EnhanceCtlOptions::*>& flags() {
  static const std::map<std::string, bool EnhanceCtlOptions::*> flags = {
      {"--greedy", &EnhanceCtlOptions::greedy},
      {"--no-guard", &EnhanceCtlOptions::no_guard},
      {"--raw", &EnhanceCtlOptions::raw},
      {"--stream", &EnhanceCtlOptions::streams},
  };
  return flags;
}

}  // namespace

bool is_enhance_option(const std::string& name) {
  return options_with_value().contains(name);
}

bool is_enhance_flag(const std::string& name) {
  return flags().contains(name);
}

void set_enhance_option(EnhanceCtlOptions& options, const std::string& name, const std::string& value) {
  options_with_value().at(name)(options, value);
}

void set_enhance_flag(EnhanceCtlOptions& options, const std::string& name) {
  options.*flags().at(name) = true;
}

std::string enhance_help_text() {
  return "  enhance [OPTIONS] PROMPT\n"
         "             has the model rewrite a prompt as LTX-2 does, and prints the text; PROMPT '-' is "
         "standard input.\n"
         "             Ctrl-C cancels. Its options, which encode --enhance takes too:\n"
         "    --image FILE           PNG or JPEG that the video is to begin with\n"
         "    --system-prompt FILE   instead of the daemon's own\n"
         "    --stream               prints the text as it comes, as generated; with --json, the events\n"
         "    --raw                  as generated: neither quotes made plain nor what comes before the first "
         "letter cut\n"
         "    --max-new-tokens N     default 512\n"
         "    --greedy               always the likeliest token; else drawn, by\n"
         "    --seed S               default 10: the same seed gives the same text\n"
         "    --temperature T        default 0.7\n"
         "    --top-k K, --top-p P   of the K likeliest (default 50; 0: all), those that make up the share P "
         "(default 1)\n"
         "    --no-repeat-ngram N    no N tokens in a row twice; default 0: off\n"
         "    --no-guard             goes on when the text goes in circles\n"
         "    --name NAME, --readers N, --deadline-ms MS, --json: as of encode; not with it\n";
}

}  // namespace gemmad
