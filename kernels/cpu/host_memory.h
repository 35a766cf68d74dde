// The host's memory as a device's.
#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "kernels/base/memory.h"

namespace gemmad::cpu {

/// There was not that much memory. what() names the bytes asked for and the system's reason.
class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// What is released goes back to the system at once, so that a daemon that sleeps really holds less: large
/// pieces are mappings of their own, which no allocator keeps for later.
class HostMemory final : public Memory {
 public:
  void* allocate(std::size_t size_bytes) override;
  void release(void* data, std::size_t size_bytes) noexcept override;
};

}  // namespace gemmad::cpu
