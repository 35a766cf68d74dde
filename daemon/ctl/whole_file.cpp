#include "daemon/ctl/whole_file.h"

#include <fcntl.h>

#include <utility>

namespace gemmad {

namespace {

constexpr std::string_view kMark = ".part.";  // the id of the process follows

}  // namespace

WholeFile::WholeFile(std::filesystem::path final_name)
    : final_name_(std::move(final_name)),
      temporary_name_(final_name_.string() + std::string(kMark) + std::to_string(::getpid())),
      fd_(check_system(::open(temporary_name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644),
                       "create " + temporary_name_)) {}

WholeFile::~WholeFile() {
  if (!temporary_name_.empty()) ::unlink(temporary_name_.c_str());
}

void WholeFile::write(const void* data, std::size_t size_bytes) {
  const char* bytes = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const auto written = ::write(fd_.get(), bytes, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    check_system(written, "write " + temporary_name_);
    bytes += written;
    size_bytes -= static_cast<std::size_t>(written);
  }
}

void WholeFile::commit() {
  check_system(::rename(temporary_name_.c_str(), final_name_.c_str()),
               "rename " + temporary_name_ + " to " + final_name_.string());
  temporary_name_.clear();
}

bool is_temporary_name(std::string_view file_name) {
  const std::size_t mark = file_name.rfind(kMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const std::string_view process = file_name.substr(mark + kMark.size());
  return !process.empty() && process.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace gemmad
