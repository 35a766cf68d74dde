#include "kernels/cpu/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace gemmad::cpu {

namespace {
constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kLargeBytes = 256 * 1024;
}  // namespace

void* HostMemory::allocate(std::size_t size_bytes) {
  if (size_bytes < kLargeBytes) return ::operator new(size_bytes, kAlignment);
  void* data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw OutOfMemory("no " + std::to_string(size_bytes) +
                      " bytes of host memory: " + std::generic_category().message(errno));
  }
  // Few large pages rather than many small ones, where the system has them. Only advice.
  ::madvise(data, size_bytes, MADV_HUGEPAGE);
  return data;
}

void HostMemory::release(void* data, std::size_t size_bytes) noexcept {
  if (data == nullptr) return;
  if (size_bytes < kLargeBytes) return ::operator delete(data, size_bytes, kAlignment);
  ::munmap(data, size_bytes);
}

}  // namespace gemmad::cpu
