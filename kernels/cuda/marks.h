// Points in the work on a stream that other streams can wait for, also inside recorded work.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/device_memory.h"

namespace gemmad::cuda {

/// Used by one thread. A mark stands for the last time that it was set, or that the graph which sets it was
/// started.
class Marks {
 public:
  /// May be captured; join() must then be called before the capture ends.
  void set(std::size_t number, cudaStream_t stream);
  /// Ends what set() began beside `stream` while it is captured. Nothing to do otherwise.
  void join(cudaStream_t stream);
  void wait(cudaStream_t waiting, std::size_t number);

 private:
  /// Marks are set on a stream beside: on the captured one itself they would stand between kernels that are
  /// to overlap.
  OwnedStream beside_;
  OwnedEvent fork_;
  OwnedEvent joint_;
  std::vector<OwnedEvent> events_;  // by number
  bool is_forked_ = false;
};

}  // namespace gemmad::cuda
