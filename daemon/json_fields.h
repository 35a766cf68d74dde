// Reads the fields of one JSON object that came from outside; what is left over at the end is an error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gemmad {

/// A field that is not what it must be. what() names the field, its value or type, and what is allowed.
class FieldError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Keeps a reference to `object`, which must be an object and must outlive it. `where` names the object in
/// errors about fields that are missing or too many, unless it is the request itself.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json& object, std::string where = {})
      : object_(object), where_(std::move(where)) {}

  /// The field's value, or nullptr when it is absent.
  const nlohmann::json* find(const std::string& key);
  /// Throws FieldError when the field is absent.
  const nlohmann::json& need(const std::string& key);

  bool boolean(const std::string& key, bool when_absent);
  /// A string of 1 .. max_bytes bytes; "" when absent.
  std::string text(const std::string& key, std::size_t max_bytes);
  /// Throws FieldError when a field of the object was never asked for.
  void expect_no_others() const;

 private:
  std::string place() const;

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> asked_;
};

/// `value` as a whole number in [min, max]. `what`: the field's name in errors.
std::int64_t to_integer(const nlohmann::json& value, const std::string& what, std::int64_t min,
                        std::int64_t max);

/// `value` as a number above 0, up to `max`.
double to_positive(const nlohmann::json& value, const std::string& what, double max);

/// `value` as an array of at most `max_items`.
const nlohmann::json& to_array(const nlohmann::json& value, std::string_view what, std::int64_t max_items);

}  // namespace gemmad
