#include "comm/segment.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/segment_layout.h"

namespace gemmad {
namespace {

std::string describe(int rank) {
  return "output segment of rank " + std::to_string(rank);
}

std::uint64_t rounded_to_pages(std::uint64_t size_bytes, int rank) {
  if (size_bytes < kMinSegmentBytes) {
    throw std::invalid_argument(describe(rank) + ": " + std::to_string(size_bytes) +
                                " bytes asked for, it takes at least " + std::to_string(kMinSegmentBytes));
  }
  const std::uint64_t units = (size_bytes - 1) / kSegmentAlignmentBytes + 1;
  constexpr auto kMaxUnits =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / kSegmentAlignmentBytes;
  return std::min(units, kMaxUnits) * kSegmentAlignmentBytes;
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

/// Maps the pages that are there, so that no write has to wait for that. Only advice.
void touch(std::span<std::byte> bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) == 0) return;
#endif
  constexpr std::size_t kPageBytes = 4096;
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytes)
    static_cast<volatile std::byte*>(bytes.data())[at] = std::byte{};
}

}  // namespace

Segment Segment::create(std::uint64_t size_bytes, int rank) {
  SharedMemory memory = SharedMemory::create(describe(rank), rounded_to_pages(size_bytes, rank));
  memory.allocate(0, memory.bytes().size());
  touch(memory.bytes());
  write_header(memory.bytes(), rank);
  return Segment(std::move(memory), rank);
}

Segment Segment::attach(const SharedMemory::Address& address, int rank) {
  return Segment(SharedMemory::attach(describe(rank), address), rank);
}

void Segment::seal() {
  memory_.seal();
}

}  // namespace gemmad
