#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/ctl/commands.h"
#include "daemon/ctl/enhance/enhance_fields.h"

namespace gemmad {

namespace {

using nlohmann::json;

std::string the_prompt(const EnhanceCtlOptions& options) {
  if (!options.prompt) throw CtlUsageError("enhance needs a PROMPT, or '-' to read it from standard input");
  if (*options.prompt != "-") return *options.prompt;
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  // The newline that ends what a shell pipes is none of the prompt.
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

json request_of(const CtlOptions& options) {
  json request = enhance_fields(options.enhance);
  request["op"] = options.enhance.image_file.empty() ? "enhance_t2v" : "enhance_i2v";
  request["prompt"] = the_prompt(options.enhance);
  if (!options.name.empty()) request["name"] = options.name;
  if (options.readers) request["readers"] = *options.readers;
  if (options.deadline_ms) request["deadline_ms"] = *options.deadline_ms;
  return request;
}

}  // namespace

// Whoever ends this process ends the connection, and with that the daemon gives the request up.
int enhance_command(ControlClient& client, const CtlOptions& options) {
  const json reply = client.call(request_of(options), print_tokens(options.json));
  const bool streamed = options.enhance.streams && !options.json;
  if (streamed) std::printf("\n");
  if (options.json) std::printf("%s\n", reply.dump().c_str());
  if (!reply.value("ok", false)) {
    std::fflush(stdout);
    std::fprintf(stderr, "gemmactl: %s\n", text_of(reply["error"]).c_str());
    return 1;
  }
  if (!streamed && !options.json) std::printf("%s\n", reply["text"].get<std::string>().c_str());
  std::fflush(stdout);
  warn_of_stop(reply);
  return 0;
}

}  // namespace gemmad
