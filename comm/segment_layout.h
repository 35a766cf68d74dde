// The bytes at the start of an output segment: what its owner writes and every reader checks. Standard
// library only.
//
// Rule for kSegmentVersion: raise it whenever a reader built before the change would misread a segment made
// after it (a field moved, resized, or given another meaning). A reader refuses every version that it does
// not know. A field added in `reserved`, which old readers may ignore, raises nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gemmad {

constexpr std::array<char, 8> kSegmentMagic = {'G', 'E', 'M', 'M', 'A', 'D', 'S', 'G'};
constexpr std::uint32_t kSegmentVersion = 1;

/// Blocks of results begin at multiples of this; the header has the first such unit to itself.
constexpr std::uint64_t kSegmentAlignmentBytes = 4096;
constexpr std::uint64_t kSegmentHeaderBytes = kSegmentAlignmentBytes;
/// The least a segment can be: the header and one block.
constexpr std::uint64_t kMinSegmentBytes = kSegmentHeaderBytes + kSegmentAlignmentBytes;

/// At offset 0. Written once, before any reader gets the descriptor. Host byte order: a segment never leaves
/// its host.
struct SegmentHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;   // results begin here: kSegmentHeaderBytes
  std::uint64_t segment_bytes;  // all of it, header included
  std::int32_t rank;
  std::uint32_t reserved;  // 0
};

static_assert(std::is_trivially_copyable_v<SegmentHeader> && std::is_standard_layout_v<SegmentHeader>);
static_assert(sizeof(SegmentHeader) == 32);
static_assert(offsetof(SegmentHeader, version) == 8);
static_assert(offsetof(SegmentHeader, header_bytes) == 12);
static_assert(offsetof(SegmentHeader, segment_bytes) == 16);
static_assert(offsetof(SegmentHeader, rank) == 24);
static_assert(sizeof(SegmentHeader) <= kSegmentHeaderBytes);

}  // namespace gemmad
