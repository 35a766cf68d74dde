#include "daemon/json_fields.h"

namespace gemmad {

namespace {

std::string described(const nlohmann::json& value) {
  if (value.is_number() || value.is_boolean() || value.is_null()) return value.dump();
  return std::string("a value of type ") + value.type_name();
}

}  // namespace

/// " of prompts[3]", or nothing.
std::string JsonFields::place() const {
  return where_.empty() ? "" : " of " + where_;
}

const nlohmann::json* JsonFields::find(const std::string& key) {
  asked_.insert(key);
  const auto field = object_.find(key);
  return field == object_.end() ? nullptr : &*field;
}

const nlohmann::json& JsonFields::need(const std::string& key) {
  const nlohmann::json* field = find(key);
  if (field == nullptr) throw FieldError("field '" + key + "'" + place() + " is missing");
  return *field;
}

bool JsonFields::boolean(const std::string& key, bool when_absent) {
  const nlohmann::json* field = find(key);
  if (field == nullptr) return when_absent;
  if (!field->is_boolean())
    throw FieldError("field '" + key + "' is " + described(*field) + ", not true or false");
  return field->get<bool>();
}

std::string JsonFields::text(const std::string& key, std::size_t max_bytes) {
  const nlohmann::json* field = find(key);
  if (field == nullptr) return {};
  if (!field->is_string()) throw FieldError("field '" + key + "' is " + described(*field) + ", not a string");
  const auto& value = field->get_ref<const std::string&>();
  if (value.empty() || value.size() > max_bytes) {
    throw FieldError("field '" + key + "' has " + std::to_string(value.size()) +
                     " bytes; it must have 1 to " + std::to_string(max_bytes));
  }
  return value;
}

void JsonFields::expect_no_others() const {
  for (const auto& [key, value] : object_.items()) {
    if (asked_.count(key) == 0) throw FieldError("unknown field '" + key.substr(0, 64) + "'" + place());
  }
}

std::int64_t to_integer(const nlohmann::json& value, const std::string& what, std::int64_t min,
                        std::int64_t max) {
  // Numbers above the signed range are unsigned in the parser; everything here fits the signed range.
  const bool fits =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max) {
    throw FieldError(what + " is " + described(value) + "; it must be a whole number from " +
                     std::to_string(min) + " to " + std::to_string(max));
  }
  return value.get<std::int64_t>();
}

double to_positive(const nlohmann::json& value, const std::string& what, double max) {
  // Written so that nothing else, not even what is no number, passes.
  if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() <= max)) {
    throw FieldError(what + " is " + described(value) + "; it must be a number above 0, up to " +
                     nlohmann::json(max).dump());
  }
  return value.get<double>();
}

const nlohmann::json& to_array(const nlohmann::json& value, std::string_view what, std::int64_t max_items) {
  if (!value.is_array()) throw FieldError(std::string(what) + " is " + described(value) + ", not a list");
  if (static_cast<std::int64_t>(value.size()) > max_items) {
    throw FieldError(std::string(what) + " has " + std::to_string(value.size()) + " items; at most " +
                     std::to_string(max_items) + " are allowed");
  }
  return value;
}

}  // namespace gemmad
