#include "comm/reader/segment_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "comm/reader/gemmad_reader.h"
#include "comm/segment_layout.h"

namespace gemmad {
namespace {

[[noreturn]] void throw_protocol(const std::string& message) {
  throw ReaderError("protocol", "the segment that the daemon passed: " + message);
}

void check_descriptor(int fd, std::uint64_t segment_bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_protocol(std::generic_category().message(errno));
  if (segment_bytes < kMinSegmentBytes || static_cast<std::uint64_t>(status.st_size) != segment_bytes) {
    throw_protocol("it has " + std::to_string(status.st_size) + " bytes, announced are " +
                   std::to_string(segment_bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw_protocol("it is not sealed");
}

void check_header(const void* data, std::uint64_t segment_bytes, int rank) {
  SegmentHeader header{};
  std::memcpy(&header, data, sizeof header);
  if (header.magic != kSegmentMagic) throw_protocol("it does not begin as a segment does");
  if (header.version != kSegmentVersion) {
    throw_protocol("its layout has version " + std::to_string(header.version) +
                   ", this library knows version " + std::to_string(kSegmentVersion));
  }
  if (header.segment_bytes != segment_bytes || header.rank != rank) {
    throw_protocol("its header is of rank " + std::to_string(header.rank) + " and " +
                   std::to_string(header.segment_bytes) + " bytes, announced are rank " +
                   std::to_string(rank) + " and " + std::to_string(segment_bytes) + " bytes");
  }
}

}  // namespace

SegmentMapping::SegmentMapping(int fd, std::uint64_t segment_bytes, int rank) {
  check_descriptor(fd, segment_bytes);
  void* const address = ::mmap(nullptr, segment_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw_protocol("mmap: " + std::generic_category().message(errno));
  bytes_ = {static_cast<const std::byte*>(address), segment_bytes};
  try {
    check_header(address, segment_bytes, rank);
  } catch (...) {
    ::munmap(address, segment_bytes);
    throw;
  }
}

SegmentMapping::~SegmentMapping() {
  // munmap takes a plain pointer, though it writes nothing.
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace gemmad
