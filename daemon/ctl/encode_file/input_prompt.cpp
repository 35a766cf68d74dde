#include "daemon/ctl/encode_file/input_prompt.h"

#include <string_view>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/ctl/encode_file/sha256.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kLineNumberDigits = 8;

std::string numbered(std::int64_t line) {
  std::string digits = std::to_string(line);
  if (digits.size() < kLineNumberDigits) digits.insert(0, kLineNumberDigits - digits.size(), '0');
  return digits;
}

/// It becomes part of a path: no folders, nothing hidden, nothing that looks like an option.
std::string checked_id(const json& id) {
  if (id.is_number_unsigned()) return std::to_string(id.get<std::uint64_t>());
  if (!id.is_string()) throw LineError("\"id\" is neither a string nor a whole number");
  const auto& text = id.get_ref<const std::string&>();
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (text.empty() || text.size() > kMaxIdBytes || text.front() == '.' || text.front() == '-' ||
      text.find_first_not_of(kAllowed) != std::string::npos) {
    throw LineError("\"id\" must have 1 to " + std::to_string(kMaxIdBytes) +
                    " characters of A-Z a-z 0-9 . _ - and begin with a letter, a digit or _");
  }
  return text;
}

void check_ids(const json& ids, std::int64_t vocab_size) {
  if (!ids.is_array() || ids.empty()) throw LineError("\"input_ids\" is not a list of at least one id");
  for (const json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) {
      throw LineError("\"input_ids\" has " + id.dump().substr(0, 32) + "; ids are 0 to " +
                      std::to_string(vocab_size - 1));
    }
  }
}

json checked_prompt(const json& content, const std::string& field, std::int64_t vocab_size) {
  if (content.is_string()) return content;
  if (!content.is_object()) throw LineError("is neither a JSON string nor an object");
  const auto text = content.find(field);
  const auto ids = content.find("input_ids");
  if (text != content.end() && ids != content.end())
    throw LineError("has both \"" + field + "\" and \"input_ids\"");
  if (ids != content.end()) {
    check_ids(*ids, vocab_size);
    return {{"input_ids", *ids}};
  }
  if (text == content.end()) throw LineError("has neither \"" + field + "\" nor \"input_ids\"");
  if (!text->is_string()) throw LineError("\"" + field + "\" is not a string");
  return *text;
}

std::string fingerprint_of(const json& prompt) {
  if (prompt.is_string()) return "text sha256 " + sha256_hex(prompt.get_ref<const std::string&>());
  return "input_ids sha256 " + sha256_hex(prompt["input_ids"].dump());
}

}  // namespace

InputPrompt parse_input_line(const InputLine& line, const std::string& field, const InputLimits& limits) {
  if (line.too_long)
    throw LineError("is longer than " + std::to_string(LineReader::kMaxLineBytes) + " bytes");
  try {
    const json content = parse_strict_json(line.text, "JSON", LineReader::kMaxLineBytes);
    InputPrompt prompt;
    prompt.line = line.number;
    prompt.prompt = checked_prompt(content, field, limits.vocab_size);
    const bool has_id = content.is_object() && content.contains("id");
    prompt.id = has_id ? checked_id(content["id"]) : numbered(line.number);
    prompt.request_bytes = prompt.prompt.dump().size() + 1;
    prompt.fingerprint = fingerprint_of(prompt.prompt);
    if (prompt.request_bytes > limits.max_request_bytes) {
      throw LineError("its prompt takes " + std::to_string(prompt.request_bytes) +
                      " bytes of a request, which may have " + std::to_string(limits.max_request_bytes));
    }
    return prompt;
  } catch (const ConfigError& error) {
    throw LineError(error.what());
  }
}

}  // namespace gemmad
