#include "daemon/ctl/enhance/enhance_fields.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "config/strict_json.h"
#include "daemon/ctl/enhance/base64.h"

namespace gemmad {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxSystemPromptBytes = 64 << 10;
// Far above what a daemon takes in a line, unless its config says otherwise.
constexpr std::size_t kMaxImageBytes = 256 << 20;

}  // namespace

json enhance_fields(const EnhanceCtlOptions& options) {
  json fields = json::object();
  if (!options.image_file.empty())
    fields["image"] = {{"file", to_base64(read_text_file(options.image_file, kMaxImageBytes))}};
  if (!options.system_prompt_file.empty())
    fields["system_prompt"] = read_text_file(options.system_prompt_file, kMaxSystemPromptBytes);
  if (options.max_new_tokens) fields["max_new_tokens"] = *options.max_new_tokens;
  if (options.seed) fields["seed"] = *options.seed;
  if (options.temperature) fields["temperature"] = *options.temperature;
  if (options.top_k) fields["top_k"] = *options.top_k;
  if (options.top_p) fields["top_p"] = *options.top_p;
  if (options.no_repeat_ngram) fields["no_repeat_ngram"] = *options.no_repeat_ngram;
  if (options.greedy) fields["greedy"] = true;
  if (options.raw) fields["clean"] = false;
  if (options.no_guard) fields["guard"] = false;
  if (options.streams) fields["stream"] = true;
  return fields;
}

std::function<void(const json& event)> print_tokens(bool as_json) {
  return [as_json](const json& event) {
    if (as_json) {
      std::printf("%s\n", event.dump().c_str());
    } else {
      std::printf("%s", event.value("text", std::string()).c_str());
    }
    std::fflush(stdout);
  };
}

void warn_of_stop(const json& enhanced) {
  const std::string stop = enhanced.value("stop", std::string("end"));
  const std::string tokens = std::to_string(enhanced.value("tokens_out", 0));
  if (stop == "length")
    std::fprintf(stderr, "gemmactl: the text breaks off after %s tokens (--max-new-tokens)\n",
                 tokens.c_str());
  if (stop == "repetition")
    std::fprintf(stderr, "gemmactl: the text went in circles and was cut; another --seed may help\n");
}

}  // namespace gemmad
