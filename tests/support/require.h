// Checks on threads of ranks, where Catch's macros must not be used.
#pragma once

#include <stdexcept>
#include <string>

namespace gemmad {

/// Throws std::runtime_error that says `what`.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

}  // namespace gemmad
