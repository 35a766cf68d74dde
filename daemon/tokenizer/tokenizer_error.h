// The error class of this folder, and how its messages are put together.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace gemmad {

/// What this folder throws. For a file: names the file, the part of it and the reason. For a text: says where
/// it stops being UTF-8.
class TokenizerError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws TokenizerError "SOURCE: PLACE: REASON".
[[noreturn]] void refuse(const std::string& source, const std::string& place, const std::string& reason);

/// `text` in quotes for a message: control characters as \xHH, cut behind some 60 bytes.
std::string quote(std::string_view text);

}  // namespace gemmad
