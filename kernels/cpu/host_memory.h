// The host's memory as a device's.
#pragma once

#include <cstddef>

#include "kernels/base/memory.h"

namespace gemmad::cpu {

/// What is released goes back to the system at once, so that a daemon that sleeps really holds less: large
/// pieces are mappings of their own, which no allocator keeps for later.
class HostMemory final : public Memory {
 public:
  void* allocate(std::size_t size_bytes) override;
  void release(void* data, std::size_t size_bytes) noexcept override;
};

}  // namespace gemmad::cpu
