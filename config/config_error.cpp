#include "config/config_error.h"

namespace gemmad {

ConfigError ConfigError::at_key(const std::string& source_name, std::string_view key,
                                const std::string& reason) {
  return ConfigError(source_name + ": key '" + printable(key, 128) + "': " + reason);
}

ConfigError ConfigError::at_position(const std::string& source_name, std::size_t line, std::size_t column,
                                     const std::string& reason) {
  return ConfigError(source_name + ": line " + std::to_string(line) + " column " + std::to_string(column) +
                     ": " + reason);
}

ConfigError ConfigError::of_source(const std::string& source_name, const std::string& reason) {
  return ConfigError(source_name + ": " + reason);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  static constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string result;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  if (text.size() > max_bytes) result += "...";
  return result;
}

}  // namespace gemmad
