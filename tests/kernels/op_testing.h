// One suite for every implementation of Ops: tests hold host vectors, this moves them to the device and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/base/float_formats.h"
#include "kernels/ops.h"

namespace gemmad {

/// A tensor on the device with the memory it is in.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;
};

/// The implementation that this program tests; each program links its own. `num_threads`: of the host, that
/// the implementation may use.
std::unique_ptr<Ops> make_test_ops(int num_threads);

class OpTesting {
 public:
  explicit OpTesting(int num_threads = 2) : ops_(make_test_ops(num_threads)) {}

  Ops& ops() { return *ops_; }
  Stream stream() { return ops_->stream(); }

  /// Most that rounding to the compute type changes a value by, relative; 0 for fp32, whose errors are
  /// counted in kEps.
  double rounding() const { return ops_->compute_dtype() == DType::kBF16 ? 0x1p-8 : 0; }
  /// What the device makes of `values`.
  std::vector<float> rounded(std::vector<float> values) const {
    if (ops_->compute_dtype() == DType::kBF16) {
      for (float& value : values)
        value = bf16_to_f32(f32_to_bf16(value));
    }
    return values;
  }

  DeviceTensor empty(const Shape& shape) { return empty(shape, ops_->compute_dtype()); }
  DeviceTensor empty(const Shape& shape, DType dtype) {
    const TensorView size{nullptr, dtype, shape};
    Buffer buffer(ops_->memory(), size.size_bytes());
    const TensorView view = buffer.view(dtype, shape);
    return {std::move(buffer), view};
  }

  DeviceTensor put(const std::vector<float>& values, const Shape& shape) {
    return put(values, shape, ops_->compute_dtype());
  }
  DeviceTensor put(const std::vector<float>& values, const Shape& shape, DType dtype) {
    DeviceTensor tensor = empty(shape, dtype);
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
    const auto count = static_cast<std::size_t>(tensor.shape.num_elements());
    std::vector<std::byte> bytes(tensor.size_bytes());
    ops_->copy_to_host({bytes.data(), tensor.dtype, tensor.shape}, tensor, stream());
    ops_->synchronize(stream());
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      values[i] = tensor.dtype == DType::kBF16 ? bf16_to_f32(load_u16(bytes.data(), index))
                                               : load_f32(bytes.data(), index);
    }
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

/// The largest |actual - expected| as a share of its limit; infinite where a value is not finite and where
/// the three are not as many.
inline double worst_share(const std::vector<float>& actual, const std::vector<double>& expected,
                          const std::vector<double>& limits) {
  if (actual.size() != expected.size() || actual.size() != limits.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (!std::isfinite(error)) return INFINITY;
    worst = std::max(worst, error == 0 ? 0 : error / limits[i]);
  }
  return worst;
}

inline constexpr double kEps = 1.0 / (1 << 24);  // half an ulp of fp32, relative

}  // namespace gemmad
