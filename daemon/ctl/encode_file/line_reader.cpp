#include "daemon/ctl/encode_file/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "daemon/ctl/options.h"

namespace gemmad {

namespace {

constexpr std::size_t kBufferBytes = 1 << 18;

FileDescriptor open_regular(const std::string& file) {
  FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw CtlUsageError(file + ": cannot be read: " + std::strerror(errno));
  struct stat status {};
  check_system(::fstat(fd.get(), &status), "look at " + file);
  if (!S_ISREG(status.st_mode)) throw CtlUsageError(file + ": is no regular file");
  return fd;
}

void append(InputLine& line, const char* bytes, std::size_t size) {
  if (!line.too_long && size <= LineReader::kMaxLineBytes - line.text.size()) {
    line.text.append(bytes, size);
    return;
  }
  line.too_long = true;
  line.text.clear();
}

}  // namespace

LineReader::LineReader(const std::string& file)
    : file_(file), fd_(open_regular(file)), buffer_(kBufferBytes, '\0') {}

std::optional<InputLine> LineReader::next() {
  for (;;) {
    InputLine line;
    line.number = ++number_;
    if (!read_line(line)) return std::nullopt;
    if (line.too_long || line.text.find_first_not_of(" \t\r") != std::string::npos) return line;
  }
}

bool LineReader::read_line(InputLine& line) {
  for (bool any = false;; any = true) {
    if (taken_ == filled_ && !fill()) return any;
    const char* const bytes = buffer_.data() + taken_;
    const void* const newline = std::memchr(bytes, '\n', filled_ - taken_);
    if (newline != nullptr) {
      const auto size = static_cast<std::size_t>(static_cast<const char*>(newline) - bytes);
      append(line, bytes, size);
      taken_ += size + 1;
      return true;
    }
    append(line, bytes, filled_ - taken_);
    taken_ = filled_;
  }
}

bool LineReader::fill() {
  for (;;) {
    const auto size = ::read(fd_.get(), buffer_.data(), buffer_.size());
    if (size < 0 && errno == EINTR) continue;
    check_system(size, "read " + file_);
    taken_ = 0;
    filled_ = static_cast<std::size_t>(size);
    return size > 0;
  }
}

std::int64_t count_lines(const std::string& file) {
  LineReader lines(file);
  std::int64_t count = 0;
  while (lines.next())
    ++count;
  return count;
}

}  // namespace gemmad
