#include "config/json_value.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/config_error.h"

namespace gemmad {

using nlohmann::json;

namespace {

ConfigError must_be(const json& value, const std::string& source_name, std::string_view key,
                    const std::string& wanted) {
  return ConfigError::at_key(source_name, key, "is " + describe(value) + ", must be " + wanted);
}

std::string short_number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// Strings from a JSON text are valid already; those from the command line or the environment need not be.
bool is_utf8(const json& string) {
  try {
    (void)string.dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

}  // namespace

std::int64_t integer_value(const json& value, const std::string& source_name, std::string_view key,
                           std::int64_t min, std::int64_t max, std::string_view unit) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  // Beyond 64 bits the parser yields an unsigned number or a double.
  const bool fits =
      value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > kMax);
  if (fits) {
    const auto number = value.get<std::int64_t>();
    if (number >= min && number <= max) return number;
  }
  std::string wanted = "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  if (!unit.empty()) wanted.append(" ").append(unit);
  throw must_be(value, source_name, key, wanted);
}

double number_value(const json& value, const std::string& source_name, std::string_view key, double min,
                    double max) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number >= min && number <= max) return number;
  }
  throw must_be(value, source_name, key, "a number from " + short_number(min) + " to " + short_number(max));
}

bool boolean_value(const json& value, const std::string& source_name, std::string_view key) {
  if (!value.is_boolean()) throw must_be(value, source_name, key, "true or false");
  return value.get<bool>();
}

std::string string_value(const json& value, const std::string& source_name, std::string_view key,
                         std::size_t max_bytes) {
  if (!value.is_string()) throw must_be(value, source_name, key, "a string");
  const auto& string = value.get_ref<const std::string&>();
  if (string.size() > max_bytes) {
    throw ConfigError::at_key(source_name, key,
                              "has " + std::to_string(string.size()) + " bytes, at most " +
                                  std::to_string(max_bytes) + " are allowed");
  }
  if (string.find('\0') != std::string::npos || !is_utf8(value)) {
    throw must_be(value, source_name, key, "UTF-8 without NUL");
  }
  return string;
}

const json& object_value(const json& value, const std::string& source_name, std::string_view key) {
  if (!value.is_object()) throw must_be(value, source_name, key, "an object");
  return value;
}

const json& array_value(const json& value, const std::string& source_name, std::string_view key,
                        std::size_t max_size) {
  if (!value.is_array()) throw must_be(value, source_name, key, "an array");
  if (value.size() > max_size) {
    throw ConfigError::at_key(source_name, key,
                              "has " + std::to_string(value.size()) + " elements, at most " +
                                  std::to_string(max_size) + " are allowed");
  }
  return value;
}

std::string describe(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return std::string("'").append(printable(value.get_ref<const std::string&>())).append("'");
    default:
      return value.dump();
  }
}

}  // namespace gemmad
