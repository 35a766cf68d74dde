// Batches as the benchmarks' --tokens takes them.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace gemmad {

/// "1,2" at ',': 1 and 2. Throws std::invalid_argument for what is no number.
inline std::vector<std::int64_t> parse_numbers(const std::string& text, char separator) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    numbers.push_back(std::stoll(part));
  return numbers;
}

/// "128,8+20": a batch of one prompt of 128 tokens, one of two of 8 and 20.
inline std::vector<std::vector<std::int64_t>> parse_batches(const std::string& text) {
  std::vector<std::vector<std::int64_t>> batches;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    batches.push_back(parse_numbers(part, '+'));
  return batches;
}

}  // namespace gemmad
