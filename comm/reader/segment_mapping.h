// A rank's segment as its readers see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gemmad {

/// Maps a segment read-only. Owns the mapping, not the descriptor, which may be closed after construction.
class SegmentMapping {
 public:
  /// Throws ReaderError "protocol" when what `fd` names is no segment of this version, of this size, of this
  /// rank, that can never shrink; a mapping that could is a crash to come. Blocks for no longer than mmap
  /// takes.
  SegmentMapping(int fd, std::uint64_t segment_bytes, int rank);
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;
  ~SegmentMapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace gemmad
