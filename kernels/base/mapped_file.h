// A whole file, mapped for reading.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Owns a private, read-only mapping of one regular file. Movable, not copyable. The bytes are valid while it
/// lives; an empty file gives an empty span. The file must not be cut short while it is read through the
/// mapping (past the cut that is SIGBUS): who comes back to it after a time calls check_unchanged() first.
class MappedFile {
 public:
  /// Throws SystemError naming the file when it cannot be opened, read or mapped, or is not a regular file.
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Copies the file's bytes from `offset` on, without going through the mapping. Blocks on the disk. Throws
  /// SystemError, also for a file that was cut short meanwhile.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

  /// Throws SystemError, naming the file, when it was written to or cut since it was opened. A file that was
  /// only deleted, or replaced by another one of its name, is unchanged.
  void check_unchanged() const;

  /// Tells the system that `part` of bytes() is not needed for now, so that it no longer counts as this
  /// process's memory. Only advice: the bytes stay readable.
  void release_pages(std::span<const std::byte> part) const noexcept;
  /// Tells the system that `part` of bytes() will be read soon. Only advice; does not block.
  void prefetch_pages(std::span<const std::byte> part) const noexcept;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  timespec written_{};  // when it was last, as of opening it
};

}  // namespace gemmad
