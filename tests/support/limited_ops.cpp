#include "tests/support/limited_ops.h"

#include <new>
#include <utility>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/host_memory.h"

namespace gemmad {
namespace {

class LimitedMemory final : public Memory {
 public:
  LimitedMemory(std::shared_ptr<Memory> memory, MemoryLimit& limit)
      : memory_(std::move(memory)), limit_(limit) {}

  void* allocate(std::size_t size_bytes) override {
    if (size_bytes > limit_.most_bytes || limit_.used_bytes > limit_.most_bytes - size_bytes)
      throw std::bad_alloc();
    void* data = memory_->allocate(size_bytes);
    limit_.used_bytes += size_bytes;
    return data;
  }
  void release(void* data, std::size_t size_bytes) noexcept override {
    limit_.used_bytes -= size_bytes;
    memory_->release(data, size_bytes);
  }

 private:
  std::shared_ptr<Memory> memory_;
  MemoryLimit& limit_;
};

}  // namespace

std::unique_ptr<Ops> make_limited_ops(MemoryLimit& limit) {
  return make_cpu_ops(1, std::make_shared<LimitedMemory>(std::make_shared<cpu::HostMemory>(), limit));
}

}  // namespace gemmad
