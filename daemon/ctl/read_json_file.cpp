#include "daemon/ctl/read_json_file.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/ctl/options.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxPromptsFileBytes = std::size_t{1} << 30;

std::ifstream open_to_read(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw CtlUsageError(file + ": cannot be read");
  return stream;
}

}  // namespace

json read_prompts_file(const std::string& file) {
  std::ifstream stream = open_to_read(file);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  json content;
  try {
    content = parse_strict_json(text, file, kMaxPromptsFileBytes);
  } catch (const ConfigError& error) {
    throw CtlUsageError(std::string(error.what()) + "; encode-file takes files of a prompt a line");
  }
  if (content.is_array()) return content;
  const auto ids = content.is_object() ? content.find("input_ids") : content.end();
  if (!content.is_object() || ids == content.end() || !ids->is_array()) {
    throw CtlUsageError(file + ": must be a JSON list of strings or of {\"input_ids\": [...]}");
  }
  json prompts = json::array();
  const bool many = !ids->empty() && ids->front().is_array();
  if (!many) return json::array({{{"input_ids", *ids}}});
  for (const json& prompt : *ids)
    prompts.push_back({{"input_ids", prompt}});
  return prompts;
}

std::vector<std::string> read_texts_file(const std::string& file) {
  std::ifstream stream = open_to_read(file);
  std::vector<std::string> texts;
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const json content = json::parse(line, nullptr, false);
    if (content.is_string()) {
      texts.push_back(content.get<std::string>());
    } else if (content.is_object() && content.contains("text") && content["text"].is_string()) {
      texts.push_back(content["text"].get<std::string>());
    } else {
      throw CtlUsageError(file + " line " + std::to_string(number) +
                          ": must be a JSON string or an object with \"text\"");
    }
  }
  return texts;
}

}  // namespace gemmad
