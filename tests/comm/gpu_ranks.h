// What programs have in common that mpirun starts with one rank a GPU.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "kernels/ops.h"

namespace gemmad {

/// A rank and its GPU. Views.
struct GpuRank {
  Bootstrap& bootstrap;
  Ops& ops;
  const Transport& transport;  // NCCL
  std::vector<int> ranks;      // all of them, in order

  int own() const { return bootstrap.info().rank; }
  int size() const { return bootstrap.info().num_ranks; }
};

/// Every wait of these programs but those that are meant to be missed.
constexpr std::chrono::milliseconds kGpuTimeout{20'000};

/// What a check throws, on all ranks, when this machine has not what it needs.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls `check` on every rank, with the GPU of its number on the node, and returns what main must: 0; 1
/// after an error, which ends the other ranks; kSkipStatus where there are fewer GPUs than ranks, and for
/// Skipped.
int check_on_gpus(const std::function<void(const GpuRank&)>& check);

/// Tells ctest that nothing was checked (SKIP_RETURN_CODE).
constexpr int kSkipStatus = 77;

/// A tensor on the GPU, and the way to it and back. Its work is on the device's stream.
class GpuTensor {
 public:
  GpuTensor(Ops& ops, DType dtype, const Shape& shape)
      : ops_(ops),
        buffer_(ops.memory(), TensorView{nullptr, dtype, shape}.size_bytes()),
        view_(buffer_.view(dtype, shape)) {}

  const TensorView& view() const { return view_; }
  /// Element by element, in the tensor's own type.
  template <typename T>
  void set(const std::vector<T>& values) {
    check<T>(values.size());
    ops_.upload(view_, {values.data(), view_.dtype, view_.shape}, ops_.stream());
  }
  /// Blocks until all work on the stream is done.
  template <typename T>
  std::vector<T> get() const {
    std::vector<T> values(view_.size_bytes() / sizeof(T));
    check<T>(values.size());
    ops_.copy_to_host({values.data(), view_.dtype, view_.shape}, view_, ops_.stream());
    ops_.synchronize(ops_.stream());
    return values;
  }

 private:
  template <typename T>
  void check(std::size_t count) const {
    if (sizeof(T) != size_bytes(view_.dtype) ||
        static_cast<std::int64_t>(count) != view_.shape.num_elements())
      throw std::logic_error("values that do not fit their tensor");
  }

  Ops& ops_;
  Buffer buffer_;
  TensorView view_;
};

}  // namespace gemmad
