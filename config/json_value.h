// Typed values out of parsed JSON, with one way of saying what is wrong with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gemmad {

/// Each returns the value, or throws ConfigError::at_key(source_name, key, "is VALUE, must be ..."). Nothing
/// is converted: 1.0 is no integer, 1 is no boolean.

/// An integer in [min, max]. `unit` is put behind the bounds in the message.
std::int64_t integer_value(const nlohmann::json& value, const std::string& source_name, std::string_view key,
                           std::int64_t min, std::int64_t max, std::string_view unit = "");
/// Any number in [min, max]; never NaN.
double number_value(const nlohmann::json& value, const std::string& source_name, std::string_view key,
                    double min, double max);
bool boolean_value(const nlohmann::json& value, const std::string& source_name, std::string_view key);
/// A UTF-8 string without NUL of at most `max_bytes`.
std::string string_value(const nlohmann::json& value, const std::string& source_name, std::string_view key,
                         std::size_t max_bytes);
/// The object itself. The reference is to `value`.
const nlohmann::json& object_value(const nlohmann::json& value, const std::string& source_name,
                                   std::string_view key);
/// The array itself, of at most `max_size` elements. The reference is to `value`.
const nlohmann::json& array_value(const nlohmann::json& value, const std::string& source_name,
                                  std::string_view key, std::size_t max_size);

/// A short text for messages: "'abc'", "1.5", "null", "an array".
std::string describe(const nlohmann::json& value);

}  // namespace gemmad
