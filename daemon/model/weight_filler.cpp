#include "daemon/model/weight_filler.h"

#include <cstddef>
#include <utility>

namespace gemmad {

std::uint64_t WeightMemory::size_bytes() const {
  std::uint64_t total = 0;
  if (!buffers) return total;
  for (const Buffer& buffer : *buffers)
    total += buffer.size_bytes();
  return total;
}

WeightFiller::WeightFiller(const WeightSource& source, Ops& ops, std::uint64_t total_bytes,
                           const LoadProgress& progress)
    : source_(source), ops_(ops), progress_(progress), total_bytes_(total_bytes) {}

TensorView WeightFiller::whole(std::string_view name) {
  const HostTensor from = tensor(name);
  const TensorView to = put(from.view);
  release_whole(from);
  return to;
}

TensorView WeightFiller::put(const ConstTensorView& host) {
  const TensorView to = make_buffer(host.shape);
  ops_.upload(to, host, ops_.stream());
  advance(to.size_bytes());
  return to;
}

TensorView WeightFiller::put_stack(const Shape& shape, std::span<const ConstMatrixView> parts) {
  const TensorView to = make_buffer(shape);
  ops_.upload_stack(to, parts, ops_.stream());
  advance(to.size_bytes());
  return to;
}

TensorView WeightFiller::make_buffer(const Shape& shape) {
  const DType dtype = ops_.compute_dtype();
  const std::size_t size_bytes = TensorView{nullptr, dtype, shape}.size_bytes();
  return buffers_.emplace_back(ops_.memory(), size_bytes).view(dtype, shape);
}

void WeightFiller::advance(std::uint64_t device_bytes) {
  done_bytes_ += device_bytes;
  if (progress_) progress_(done_bytes_, total_bytes_);
}

void WeightFiller::release_whole(const HostTensor& tensor) {
  count_taken(tensor.view.size_bytes());
  release(tensor);
}

WeightMemory WeightFiller::finish() {
  ops_.synchronize(ops_.stream());
  memory_.buffers = std::make_shared<const std::vector<Buffer>>(std::move(buffers_));
  return std::move(memory_);
}

}  // namespace gemmad
