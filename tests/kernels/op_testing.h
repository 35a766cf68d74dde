// One suite for every implementation of Ops: tests hold host vectors, this moves them to the device and back.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"

namespace gemmad {

/// A tensor on the device with the memory it is in.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;
};

class OpTesting {
 public:
  explicit OpTesting(int num_threads = 2) : ops_(make_cpu_ops(num_threads)) {}

  Ops& ops() { return *ops_; }
  Stream stream() { return ops_->stream(); }

  DeviceTensor empty(const Shape& shape, DType dtype = DType::kF32) {
    const TensorView size{nullptr, dtype, shape};
    Buffer buffer(ops_->memory(), size.size_bytes());
    const TensorView view = buffer.view(dtype, shape);
    return {std::move(buffer), view};
  }

  DeviceTensor put(const std::vector<float>& values, const Shape& shape) {
    DeviceTensor tensor = empty(shape);
    ops_->upload(tensor.view, {values.data(), DType::kF32, shape}, stream());
    return tensor;
  }

  DeviceTensor put(const std::vector<std::int32_t>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    DeviceTensor tensor = empty(shape, DType::kI32);
    ops_->upload(tensor.view, {values.data(), DType::kI32, shape}, stream());
    return tensor;
  }

  std::vector<float> get(const ConstTensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.num_elements()));
    ops_->copy_to_host({values.data(), DType::kF32, tensor.shape}, tensor, stream());
    ops_->synchronize(stream());
    return values;
  }

 private:
  std::unique_ptr<Ops> ops_;
};

/// Seeded values, normal with this deviation.
inline std::vector<float> random_values(std::int64_t count, std::uint64_t seed, float deviation = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = normal(random);
  return values;
}

inline constexpr double kEps = 1.0 / (1 << 24);  // half an ulp of fp32, relative

}  // namespace gemmad
