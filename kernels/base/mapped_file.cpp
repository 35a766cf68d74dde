#include "kernels/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/file_descriptor.h"

namespace gemmad {
namespace {

// madvise takes whole pages. Rounding to the inside keeps neighbours out of it, rounding to the outside takes
// them in.
void advise(std::span<const std::byte> part, int advice, bool inside) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const auto end = begin + part.size();
  const std::uintptr_t first = inside ? (begin + page - 1) / page * page : begin / page * page;
  const std::uintptr_t last = inside ? end / page * page : end;
  if (part.empty() || last <= first) return;
  ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

struct stat status_of(const FileDescriptor& fd, const std::filesystem::path& path) {
  struct stat status {};
  check_system(::fstat(fd.get(), &status), "stat " + path.string());
  return status;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) : path_(file) {
  fd_.reset(check_system(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), "open " + file.string()));
  const struct stat status = status_of(fd_, path_);
  if (!S_ISREG(status.st_mode)) throw SystemError(EINVAL, "map " + file.string() + ": not a regular file");
  size_bytes_ = static_cast<std::size_t>(status.st_size);
  written_ = status.st_mtim;
  if (size_bytes_ == 0) return;
  void* mapping = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
  if (mapping == MAP_FAILED) throw SystemError(errno, "map " + file.string());
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      written_(other.written_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(written_, other.written_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void MappedFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    check_system(count, "read " + path_.string());
    if (count == 0) throw SystemError(ENODATA, "read " + path_.string() + ": it was cut short meanwhile");
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void MappedFile::check_unchanged() const {
  const struct stat status = status_of(fd_, path_);
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  if (size_bytes == size_bytes_ && status.st_mtim.tv_sec == written_.tv_sec &&
      status.st_mtim.tv_nsec == written_.tv_nsec)
    return;
  throw SystemError(ESTALE, "read " + path_.string() + ": it was written to since it was opened (" +
                                std::to_string(size_bytes_) + " bytes then, " + std::to_string(size_bytes) +
                                " now); start again, and replace files by renaming");
}

void MappedFile::release_pages(std::span<const std::byte> part) const noexcept {
  advise(part, MADV_DONTNEED, true);
}

void MappedFile::prefetch_pages(std::span<const std::byte> part) const noexcept {
  advise(part, MADV_WILLNEED, false);
}

}  // namespace gemmad
