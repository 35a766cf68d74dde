#include "comm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/host_memory.h"
#include "comm/segment_layout.h"

// Kernel 5.1; libc headers of some distributions are older than their kernels.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace gemmad {
namespace {

std::string describe(std::uint64_t size_bytes, int rank) {
  return "output segment of " + std::to_string(size_bytes) + " bytes for rank " + std::to_string(rank);
}

[[noreturn]] void throw_too_little(std::uint64_t size_bytes, int rank, std::uint64_t available_bytes) {
  throw std::runtime_error(describe(size_bytes, rank) + ": only " + std::to_string(available_bytes) +
                           " bytes of memory are available; make the segment smaller or free memory");
}

std::uint64_t rounded_to_pages(std::uint64_t size_bytes, int rank) {
  if (size_bytes < kMinSegmentBytes) {
    throw std::invalid_argument(describe(size_bytes, rank) + ": it takes at least " +
                                std::to_string(kMinSegmentBytes) + " bytes");
  }
  const std::uint64_t units = (size_bytes - 1) / kSegmentAlignmentBytes + 1;
  constexpr auto kMaxUnits =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / kSegmentAlignmentBytes;
  return std::min(units, kMaxUnits) * kSegmentAlignmentBytes;
}

/// Allocates the pages, so that lack of memory shows here and not at a write later.
void fill_with_memory(int fd, std::uint64_t size_bytes, int rank) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  if (error == ENOSPC || error == ENOMEM) throw_too_little(size_bytes, rank, available_memory_bytes());
  if (error != 0) throw SystemError(error, describe(size_bytes, rank) + ": posix_fallocate");
}

void write_header(std::span<std::byte> bytes, int rank) {
  SegmentHeader header{};
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.header_bytes = static_cast<std::uint32_t>(kSegmentHeaderBytes);
  header.segment_bytes = bytes.size();
  header.rank = rank;
  std::memcpy(bytes.data(), &header, sizeof header);
}

}  // namespace

Segment Segment::create(std::uint64_t size_bytes, int rank) {
  size_bytes = rounded_to_pages(size_bytes, rank);
  const std::string subject = describe(size_bytes, rank);
  // Asked first: the kernel would rather kill a process than refuse such pages.
  const std::uint64_t available_bytes = available_memory_bytes();
  if (size_bytes > available_bytes) throw_too_little(size_bytes, rank, available_bytes);

  const std::string name = "gemmad segment of rank " + std::to_string(rank);
  FileDescriptor fd(check_system(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING),
                                 subject + ": memfd_create"));
  check_system(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), subject + ": ftruncate");
  fill_with_memory(fd.get(), size_bytes, rank);

  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (address == MAP_FAILED) throw SystemError(errno, subject + ": mmap");
  Segment segment(std::move(fd), {static_cast<std::byte*>(address), size_bytes}, rank);

  write_header(segment.bytes(), rank);
  // FUTURE_WRITE spares the mapping that exists: ours stays the only writable one.
  check_system(
      ::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
      subject + ": seal it (needs Linux 5.1)");
  return segment;
}

Segment::Segment(FileDescriptor fd, std::span<std::byte> bytes, int rank)
    : fd_(std::move(fd)), bytes_(bytes), rank_(rank) {}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})), rank_(other.rank_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  std::swap(rank_, other.rank_);
  return *this;
}

Segment::~Segment() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace gemmad
