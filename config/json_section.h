// The members of a JSON object, one by one. Needs the whole of nlohmann's header: for implementations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "config/config_error.h"
#include "config/json_value.h"

namespace gemmad {

/// The members of one JSON object, typed, with their dotted path in errors.
class Section {
 public:
  /// Longest string that is read.
  static constexpr std::size_t kMaxNameBytes = 256;

  /// Keeps references to `object` and `source_name`. Throws ConfigError when `object` is none.
  Section(const nlohmann::json& object, const std::string& source_name, std::string path)
      : object_(object_value(object, source_name, path)), source_name_(source_name), path_(std::move(path)) {}

  const std::string& source_name() const { return source_name_; }
  std::string path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  ConfigError error(std::string_view key, const std::string& reason) const {
    return ConfigError::at_key(source_name_, path_of(key), reason);
  }

  /// nullptr when absent.
  const nlohmann::json* find(std::string_view key) const {
    const auto member = object_.find(std::string(key));
    return member == object_.end() ? nullptr : &*member;
  }
  /// nullptr when absent or null, for keys where null means "none".
  const nlohmann::json* find_value(std::string_view key) const {
    const nlohmann::json* value = find(key);
    return value != nullptr && value->is_null() ? nullptr : value;
  }

  std::int64_t integer(std::string_view key, std::int64_t absent, std::int64_t min, std::int64_t max) const {
    const nlohmann::json* value = find(key);
    return value == nullptr ? absent : integer_value(*value, source_name_, path_of(key), min, max);
  }
  double number(std::string_view key, double absent, double min, double max) const {
    const nlohmann::json* value = find(key);
    return value == nullptr ? absent : number_value(*value, source_name_, path_of(key), min, max);
  }
  bool boolean(std::string_view key, bool absent) const {
    const nlohmann::json* value = find_value(key);
    return value == nullptr ? absent : boolean_value(*value, source_name_, path_of(key));
  }
  std::string string(std::string_view key, const std::string& absent) const {
    const nlohmann::json* value = find(key);
    return value == nullptr ? absent : string_value(*value, source_name_, path_of(key), kMaxNameBytes);
  }

 private:
  const nlohmann::json& object_;
  const std::string& source_name_;
  std::string path_;
};

}  // namespace gemmad
