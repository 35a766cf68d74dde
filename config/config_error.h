// The error class of everything that reads settings: the daemon's own and the model's config.json.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gemmad {

/// A setting that cannot be used. `what()` is one printable line that starts with the source: a file's name,
/// "command line" or "environment".
class ConfigError : public std::runtime_error {
 public:
  /// "SOURCE: key 'KEY': REASON". `key` is a dotted path: "text_config.layer_types[3]".
  static ConfigError at_key(const std::string& source_name, std::string_view key, const std::string& reason);
  /// "SOURCE: line LINE column COLUMN: REASON". Both count from 1; columns are bytes.
  static ConfigError at_position(const std::string& source_name, std::size_t line, std::size_t column,
                                 const std::string& reason);
  /// "SOURCE: REASON", for a source that cannot be read at all.
  static ConfigError of_source(const std::string& source_name, const std::string& reason);

 private:
  using std::runtime_error::runtime_error;
};

/// `text` fit for a message: bytes that are not printable ASCII become \xNN, and what exceeds `max_bytes` of
/// `text` is cut and marked "...".
std::string printable(std::string_view text, std::size_t max_bytes = 64);

}  // namespace gemmad
