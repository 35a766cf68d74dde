// The error class of this folder.
#pragma once

#include <stdexcept>

namespace gemmad {

/// What this folder throws. For a file: names the file, the part of it and the reason. For a text: says where
/// it stops being UTF-8.
class TokenizerError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace gemmad
