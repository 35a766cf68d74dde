#include "comm/line_splitter.h"

#include <utility>

namespace gemmad {
namespace {

// A buffer above this size is given back after its line: most lines are short.
constexpr std::size_t kKeptBytes = 16 * 1024;

}  // namespace

LineSplitter::Event LineSplitter::next(std::string_view& bytes, std::string_view& line) {
  if (completed_.capacity() > kKeptBytes) completed_ = std::string();
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const bool ends = newline != std::string_view::npos;
    const std::string_view piece = bytes.substr(0, newline);
    bytes.remove_prefix(ends ? newline + 1 : bytes.size());

    if (skipping_) {
      skipping_ = !ends;
      continue;
    }
    if (piece.size() > max_line_bytes_ - partial_.size()) {
      partial_ = std::string();
      skipping_ = !ends;
      return Event::kTooLong;
    }
    if (!ends) {
      partial_ += piece;
      continue;
    }
    line = piece;
    if (!partial_.empty()) {
      completed_ = std::exchange(partial_, std::string());
      completed_ += piece;
      line = completed_;
    }
    if (!line.empty()) return Event::kLine;
  }
  return Event::kNeedMore;
}

}  // namespace gemmad
