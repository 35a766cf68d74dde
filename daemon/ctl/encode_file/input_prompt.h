// What a line of the input says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "daemon/ctl/encode_file/line_reader.h"

namespace gemmad {

struct InputPrompt {
  std::int64_t line = 0;
  std::string id;                 // fit for a file's name
  nlohmann::json prompt;          // as encode takes it: text, or {"input_ids": [...]}
  std::size_t request_bytes = 0;  // that it takes there
  std::string fingerprint;        // "text sha256 HEX", or "input_ids sha256 HEX" of the ids as "[2,17]"
};

/// What the daemon takes.
struct InputLimits {
  std::int64_t vocab_size = 0;
  std::size_t max_request_bytes = 0;  // of prompts
};

/// A line that is no prompt. what() says why, without the place.
class LineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Pure. `field`: where an object has its text. Throws LineError.
InputPrompt parse_input_line(const InputLine& line, const std::string& field, const InputLimits& limits);

}  // namespace gemmad
