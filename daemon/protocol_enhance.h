// Parses what requests say of enhancement. Pure and bounded.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "daemon/enhance_request.h"
#include "daemon/json_fields.h"
#include "daemon/protocol.h"

namespace gemmad {

/// The fields of an enhance_t2v or, with its image, an enhance_i2v. Throw FieldError, among them RefusedField
/// with "no_tokenizer", "no_enhancer" and "no_vision" for what this daemon cannot do.
EnhanceRequest parse_enhance_t2v(JsonFields& fields, const ProtocolLimits& limits);
EnhanceRequest parse_enhance_i2v(JsonFields& fields, const ProtocolLimits& limits);

/// The field "enhance" of an encode: true, false, or an object of options and image. Empty: nothing is
/// enhanced. Throws as above.
std::optional<EnhanceOptions> parse_enhance_field(const nlohmann::json& value, const ProtocolLimits& limits);

}  // namespace gemmad
