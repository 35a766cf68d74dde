// Fields that several requests have, and refusals with a code of their own. For the parsers of the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "comm/result_store.h"
#include "daemon/json_fields.h"
#include "daemon/protocol.h"

namespace gemmad {

inline constexpr std::size_t kMaxNameBytes = kMaxResultNameBytes;

/// A field that programs can react to: its code is not "bad_request".
class RefusedField : public FieldError {
 public:
  RefusedField(std::string code, const std::string& message) : FieldError(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

/// "name", "deadline_ms" and "readers", as every request has them that makes a result. Throw FieldError.
inline std::string parse_name(JsonFields& fields) {
  return fields.text("name", kMaxNameBytes);
}

inline std::optional<std::int64_t> parse_deadline(JsonFields& fields, const ProtocolLimits& limits) {
  const nlohmann::json* deadline = fields.find("deadline_ms");
  if (deadline == nullptr) return std::nullopt;
  return to_integer(*deadline, "field 'deadline_ms'", 1, limits.max_deadline_ms);
}

inline std::int64_t parse_readers(JsonFields& fields) {
  constexpr std::int64_t kMaxReaders = 1'000'000;
  const nlohmann::json* readers = fields.find("readers");
  return readers == nullptr ? 0 : to_integer(*readers, "field 'readers'", 1, kMaxReaders);
}

}  // namespace gemmad
