// One buffer, cut into places for tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/memory.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Hands out places in one buffer, one after another, each at a multiple of 256 bytes; without a buffer only
/// sizes are found.
class MemoryCutter {
 public:
  explicit MemoryCutter(const Buffer* memory) : memory_(memory) {}

  TensorView place(DType dtype, const Shape& shape) { return place(dtype, shape.num_elements(), shape); }
  /// With room for `num_elements`, of which `shape` is a part.
  TensorView place(DType dtype, std::int64_t num_elements, const Shape& shape) {
    const std::size_t offset_bytes = end_bytes_;
    end_bytes_ += TensorView{nullptr, dtype, {num_elements}}.size_bytes();
    align();
    most_bytes_ = std::max(most_bytes_, end_bytes_);
    return memory_ != nullptr ? memory_->view(dtype, shape, offset_bytes) : TensorView{nullptr, dtype, shape};
  }

  void align() { end_bytes_ = (end_bytes_ + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }
  std::size_t end_bytes() const { return end_bytes_; }
  /// The next place is at `end_bytes`, over others.
  void rewind(std::size_t end_bytes) { end_bytes_ = end_bytes; }
  std::size_t most_bytes() const { return most_bytes_; }

 private:
  static constexpr std::size_t kAlignmentBytes = 256;

  const Buffer* memory_;
  std::size_t end_bytes_ = 0;
  std::size_t most_bytes_ = 0;
};

}  // namespace gemmad
