#include "kernels/cuda/device_memory.h"

namespace gemmad::cuda {

void* DeviceMemory::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, size_bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told here, and not once more by the next call
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    throw OutOfDeviceMemory("no " + std::to_string(size_bytes) + " bytes of GPU memory: " +
                            std::to_string(free_bytes) + " of " + std::to_string(total_bytes) + " are free");
  }
  check_cuda(result, "cudaMalloc");
  return data;
}

void DeviceMemory::release(void* data, std::size_t) noexcept {
  cudaFree(data);
}

OwnedStream::OwnedStream(bool high_priority) {
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, high_priority ? greatest : least),
             "cudaStreamCreateWithPriority");
}

OwnedStream::~OwnedStream() {
  cudaStreamDestroy(stream_);
}

OwnedEvent::OwnedEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

OwnedEvent::~OwnedEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

PinnedBuffer::PinnedBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  check_cuda(cudaHostAlloc(&data_, size_bytes, cudaHostAllocDefault), "cudaHostAlloc");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace gemmad::cuda
