// Memory of a GPU, and what else is owned there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "kernels/base/memory.h"
#include "kernels/cuda/check.h"

namespace gemmad::cuda {

/// The GPU had not that much memory. what() names the bytes asked for, those free and those there are.
class OutOfDeviceMemory final : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// Of the device that is current when it is called. Every piece is an allocation of its own, so that what is
/// released is free for other processes at once.
class DeviceMemory final : public Memory {
 public:
  /// Throws OutOfDeviceMemory; CudaError when the device failed.
  void* allocate(std::size_t size_bytes) override;
  void release(void* data, std::size_t size_bytes) noexcept override;
};

/// Owns a stream that does not wait for the default one. `high_priority`: its kernels go first.
class OwnedStream {
 public:
  explicit OwnedStream(bool high_priority = false);
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream();
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns an event without timing.
class OwnedEvent {
 public:
  OwnedEvent();
  OwnedEvent(OwnedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  OwnedEvent& operator=(OwnedEvent&&) = delete;
  ~OwnedEvent();
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Owns page-locked memory of the host.
class PinnedBuffer {
 public:
  /// Throws CudaError.
  explicit PinnedBuffer(std::size_t size_bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;
  ~PinnedBuffer();
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace gemmad::cuda
