// What options' values are made of.
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include "daemon/ctl/options.h"

namespace gemmad {

/// The number that `text` is. Throws CtlUsageError naming `option` when it is none in [min, max].
template <typename Number>
Number to_number(const std::string& option, const std::string& text, Number min, Number max) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max)) {
    throw CtlUsageError(option + " is '" + text.substr(0, 64) + "'; it must be a number from " +
                        std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

/// The parts of "a,b,c"; of "", one empty part.
std::vector<std::string> split_at_commas(const std::string& text);

}  // namespace gemmad
