// What the tests of config/ share.
#pragma once

#include <string>
#include <utility>

#include "config/config_error.h"
#include "config/strict_json.h"

namespace gemmad {

/// The message of the ConfigError that `call` throws; "" when it throws none. Any other exception passes.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The text of tests/data/config/NAME.
inline std::string config_data(const std::string& name) {
  return read_text_file(std::string(GEMMAD_TEST_DATA) + "/config/" + name, kMaxConfigBytes);
}

}  // namespace gemmad
