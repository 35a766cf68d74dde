// Cuts a stream of bytes into lines of bounded length. Pure: no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gemmad {

/// Holds at most one unfinished line of `max_line_bytes`, however long the lines that come.
class LineSplitter {
 public:
  enum class Event : std::uint8_t {
    kNeedMore,  // all bytes are taken
    kLine,      // `line` is set
    kTooLong,   // a line is above the limit; said once for it, the rest of it is skipped
  };

  /// `max_line_bytes` does not count the newline.
  explicit LineSplitter(std::size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  /// Takes bytes off the front of `bytes` up to the next event. Empty lines are no event. `line` has no
  /// newline and is valid until the next call, while the memory behind `bytes` is.
  Event next(std::string_view& bytes, std::string_view& line);
  /// A line has begun and not ended.
  bool has_partial_line() const { return skipping_ || !partial_.empty(); }

 private:
  std::size_t max_line_bytes_;
  std::string partial_;
  std::string completed_;
  bool skipping_ = false;
};

}  // namespace gemmad
