// Any line is either a request or a ProtocolError with a code and an id that is JSON.

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "daemon/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gemmad::ProtocolLimits limits;
  limits.max_line_bytes = 1 << 16;
  limits.max_prompts = 8;
  limits.num_layers = 48;
  limits.has_enhancer = limits.has_vision = true;
  limits.enhancer_vocab_size = 1000;
  limits.enhance_context = 512;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  gemmad::RequestId id;
  try {
    const gemmad::Request request = gemmad::parse_request(line, limits);
    id = request.id;
    if (request.op.empty()) std::abort();
  } catch (const gemmad::ProtocolError& error) {
    id = error.id();
    if (error.code().empty()) std::abort();
  }
  if (!nlohmann::json::accept(id)) std::abort();
  return 0;
}
