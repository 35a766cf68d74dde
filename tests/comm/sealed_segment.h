// A segment as readers get it.
#pragma once

#include "comm/segment.h"

namespace gemmad {

inline Segment sealed_segment(std::uint64_t size_bytes, int rank) {
  Segment segment = Segment::create(size_bytes, rank);
  segment.seal();
  return segment;
}

}  // namespace gemmad
