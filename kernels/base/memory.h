// Memory of a device, and its owning handle.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/base/tensor.h"

namespace gemmad {

/// Where buffers come from. Thread-safe. Implementations: the host's (kernels/cpu), later a device's.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Returns `size_bytes` uninitialised bytes aligned to 64 or more; may block. Throws std::bad_alloc (or a
  /// class derived from it that says more) when there is not that much. `size_bytes` of 0 is allowed.
  virtual void* allocate(std::size_t size_bytes) = 0;
  /// Takes back what allocate(size_bytes) returned.
  virtual void release(void* data, std::size_t size_bytes) noexcept = 0;
};

/// Owns one allocation and keeps its Memory alive. Movable, not copyable; empty when default-made or moved
/// from.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Memory> memory, std::size_t size_bytes)
      : memory_(std::move(memory)), data_(memory_->allocate(size_bytes)), size_bytes_(size_bytes) {}
  Buffer(Buffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    std::swap(memory_, taken.memory_);
    std::swap(data_, taken.data_);
    std::swap(size_bytes_, taken.size_bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (memory_) memory_->release(data_, size_bytes_);
  }

  void* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

  /// The tensor of `shape` that begins `offset_bytes` into this buffer. Valid while the buffer lives.
  /// Throws std::out_of_range when it does not fit.
  TensorView view(DType dtype, const Shape& shape, std::size_t offset_bytes = 0) const;

 private:
  std::shared_ptr<Memory> memory_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace gemmad
