// Fills buffers of a device with a model's weights, one after another, from where they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/model/weight_source.h"
#include "kernels/base/memory.h"
#include "kernels/ops.h"

namespace gemmad {

/// Called with the bytes of device memory filled so far and in the end; at the end they are equal. May throw,
/// to give up.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// The device memory that a model's weights are views into. Copies share it; it lives as long as the last of
/// them.
struct WeightMemory {
  std::shared_ptr<const std::vector<Buffer>> buffers;
  std::uint64_t source_bytes = 0;  // taken from the source

  std::uint64_t size_bytes() const;
};

/// Views that it returns are of the compute type of `ops` and lie in `ops`' memory; they are filled once
/// finish() has returned. All that it is made with must outlive it. Its calls throw what the source and
/// `progress` throw, std::bad_alloc, OpError.
class WeightFiller {
 public:
  /// `total_bytes`: what it will have filled in the end.
  WeightFiller(const WeightSource& source, Ops& ops, std::uint64_t total_bytes, const LoadProgress& progress);

  /// One of the source's tensors, by canonical name.
  HostTensor tensor(std::string_view name) const { return source_.tensor(name); }

  /// That tensor as it is.
  TensorView whole(std::string_view name);
  /// `host`, which may be changed or freed on return.
  TensorView put(const ConstTensorView& host);
  /// [rows of all, columns]: `parts` on top of each other, likewise.
  TensorView put_stack(const Shape& shape, std::span<const ConstMatrixView> parts);
  /// For the caller to fill on ops.stream(), and to tell advance() of.
  TensorView make_buffer(const Shape& shape);
  /// So many bytes more of device memory are filled.
  void advance(std::uint64_t device_bytes);

  /// `source_bytes` were taken from the source.
  void count_taken(std::uint64_t source_bytes) { memory_.source_bytes += source_bytes; }
  /// `tensor`, or a part of one, is not needed any more. Does not count it as taken.
  void release(const HostTensor& tensor) { source_.release(tensor); }
  /// All of `tensor` was taken, and it is not needed any more.
  void release_whole(const HostTensor& tensor);

  /// Waits until all is there, and gives it away. The last call.
  WeightMemory finish();

 private:
  const WeightSource& source_;
  Ops& ops_;
  const LoadProgress& progress_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::vector<Buffer> buffers_;
  WeightMemory memory_;
};

}  // namespace gemmad
