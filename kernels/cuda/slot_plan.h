// How matrices that stand on top of each other are carried in buffers of one size. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor.h"

namespace gemmad::cuda {

/// Some rows, or a part of one row, and where they go in a buffer.
struct SlotPiece {
  ConstMatrixView source;
  std::size_t offset_bytes = 0;  // in the buffer
};

/// What one buffer carries, without gaps.
struct SlotLoad {
  std::vector<SlotPiece> pieces;
  std::size_t size_bytes = 0;
};

/// Cuts `parts`, in their order, into as few loads of up to `slot_bytes` as that order allows. An element
/// takes `element_bytes` in the buffer, whatever it takes in its source. No piece takes much more than
/// `piece_bytes` there, so that several threads can share a load.
std::vector<SlotLoad> plan_slots(std::span<const ConstMatrixView> parts, std::size_t element_bytes,
                                 std::size_t slot_bytes, std::size_t piece_bytes);

}  // namespace gemmad::cuda
