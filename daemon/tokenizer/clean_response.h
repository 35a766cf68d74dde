// What a model generated, made ready to be a prompt.
#pragma once

#include <string>
#include <string_view>

namespace gemmad {

/// LTX-2's own clean-up: typographic quotes, dashes and spaces become ASCII (U+2018, 2019, 2032 to ', U+201C,
/// 201D to ", U+2014, 2013, 2212 to -, U+00A0 to a space), then all before the first letter (of Unicode's
/// categories Lu, Ll, Lt, Lm and Lo) is dropped; nothing is where there is no letter. `valid_utf8` must be
/// well-formed.
std::string clean_response(std::string_view valid_utf8);

}  // namespace gemmad
