#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "daemon/ctl/commands.h"
#include "daemon/ctl/read_json_file.h"

namespace gemmad {

namespace {

using nlohmann::json;

// A request holds as many texts as fit both of these: below the daemon's default limits.
constexpr std::size_t kTextsPerRequest = 64;
constexpr std::size_t kBytesPerRequest = 1 << 20;

std::size_t texts_of_next_request(std::span<const std::string> texts) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < texts.size() && count < kTextsPerRequest) {
    bytes += texts[count].size();
    if (count > 0 && bytes > kBytesPerRequest) break;
    ++count;
  }
  return count;
}

bool print_result(const json& result, bool as_json) {
  if (result.contains("error")) {
    std::fprintf(stderr, "gemmactl: %s\n", text_of(result["error"]).c_str());
    if (as_json) std::printf("null\n");
    return false;
  }
  if (as_json) {
    std::printf("%s\n", result["ids"].dump().c_str());
  } else {
    std::printf("%6d ids%s: %s\n", result["count"].get<int>(),
                result["truncated"].get<bool>() ? ", cut by encode" : "", result["ids"].dump().c_str());
  }
  return true;
}

}  // namespace

int tokenize_command(ControlClient& client, const CtlOptions& options) {
  std::vector<std::string> texts = options.texts;
  if (!options.texts_file.empty()) {
    for (std::string& text : read_texts_file(options.texts_file))
      texts.push_back(std::move(text));
  }
  bool all_delivered = true;
  for (std::span<const std::string> left = texts; !left.empty();) {
    const auto now = left.first(texts_of_next_request(left));
    left = left.subspan(now.size());
    const json reply = client.call({{"op", "tokenize"},
                                    {"texts", std::vector<std::string>(now.begin(), now.end())},
                                    {"as_prompts", options.as_prompts}});
    if (!reply.value("ok", false)) {
      std::fprintf(stderr, "gemmactl: %s\n", text_of(reply["error"]).c_str());
      return 1;
    }
    for (const json& result : reply["texts"])
      all_delivered = print_result(result, options.json) && all_delivered;
  }
  return all_delivered ? 0 : 1;
}

}  // namespace gemmad
