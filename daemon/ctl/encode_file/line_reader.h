// Reads a file line by line, as long as it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

struct InputLine {
  std::int64_t number = 0;  // from 1, empty lines counted
  std::string text;         // without its newline; empty when it is too long
  bool too_long = false;
};

/// Holds one line and a buffer, whatever the file's size. Blocks on the disk.
class LineReader {
 public:
  static constexpr std::size_t kMaxLineBytes = 1 << 20;

  /// Throws CtlUsageError when `file` cannot be read or is no regular file: it is read twice.
  explicit LineReader(const std::string& file);

  /// The next line that is not empty or blank; nothing at the end. Throws SystemError.
  std::optional<InputLine> next();

 private:
  bool read_line(InputLine& line);
  bool fill();

  std::string file_;
  FileDescriptor fd_;
  std::string buffer_;
  std::size_t taken_ = 0;   // bytes of buffer_ that are no longer needed
  std::size_t filled_ = 0;  // and how many there are
  std::int64_t number_ = 0;
};

/// How many lines next() gives for `file`. Throws as LineReader.
std::int64_t count_lines(const std::string& file);

}  // namespace gemmad
