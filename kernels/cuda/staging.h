// From pageable host memory to the device at the speed of the bus.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/base/tensor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/device_memory.h"

namespace gemmad::cuda {

/// A ring of page-locked buffers: several threads fill one, converting as they go, while another is on its
/// way. One caller at a time.
class Staging {
 public:
  /// `num_threads`: that fill, the caller's included.
  explicit Staging(int num_threads);

  /// dst := convert(parts, on top of each other), types as Ops::upload takes them. dst on the device,
  /// contiguous; parts on the host. On return they have been read; dst is complete when what is on `stream`
  /// is done. May wait for earlier copies.
  void copy(TensorView dst, std::span<const ConstMatrixView> parts, cudaStream_t stream);

 private:
  struct Slot {
    PinnedBuffer buffer;
    OwnedEvent sent;
  };
  cpu::ThreadPool pool_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

}  // namespace gemmad::cuda
