// Any bytes from a reader: a request or a reason, never more. What is answered must be one line of JSON.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "comm/line_splitter.h"
#include "comm/reader_protocol.h"

namespace {

constexpr std::size_t kMaxLineBytes = 4096;

void require(bool condition) {
  if (!condition) std::abort();
}

void handle_line(std::string_view line) {
  require(!line.empty() && line.size() <= kMaxLineBytes && line.find('\n') == std::string_view::npos);
  const auto parsed = gemmad::parse_reader_request(line);
  if (const auto* bad = std::get_if<gemmad::BadReaderRequest>(&parsed)) {
    const std::string reply = gemmad::format_error(bad->id, "bad_request", bad->message);
    require(reply.size() < 2000 && reply.find('\n') == std::string::npos && nlohmann::json::accept(reply));
    return;
  }
  const auto& request = std::get<gemmad::ReaderRequest>(parsed);
  const auto* acquire = std::get_if<gemmad::AcquireRequest>(&request.body);
  if (acquire == nullptr) return;
  require(acquire->deadline.count() >= 0 && acquire->deadline <= gemmad::kMaxAcquireDeadline);
  if (const auto* name = std::get_if<std::string>(&acquire->key)) {
    require(!name->empty() && name->size() <= gemmad::kMaxResultNameBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  gemmad::LineSplitter splitter(kMaxLineBytes);
  std::string_view line;
  while (true) {
    const auto event = splitter.next(bytes, line);
    if (event == gemmad::LineSplitter::Event::kNeedMore) return 0;
    if (event == gemmad::LineSplitter::Event::kLine) handle_line(line);
  }
}
