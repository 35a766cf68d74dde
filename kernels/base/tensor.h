// Element types, shapes and non-owning tensor views. Views never own; who owns is said where the view is
// handed out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gemmad {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32, kU8 };

/// Bytes of one element.
constexpr std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// The name safetensors gives it: "F32", "BF16", "F16", "I32", "U8".
constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

/// Up to four extents; the last axis is contiguous. Extents are not negative.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  /// Throws std::invalid_argument for more than kMaxRank extents or a negative one.
  explicit Shape(std::span<const std::int64_t> extents) {
    if (extents.size() > kMaxRank) throw std::invalid_argument("a shape has at most 4 extents");
    for (std::int64_t extent : extents) {
      if (extent < 0) throw std::invalid_argument("a shape has no negative extent");
      extents_[rank_++] = extent;
    }
  }

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  std::span<const std::int64_t> extents() const { return {extents_.data(), rank_}; }
  std::int64_t num_elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : extents())
      product *= extent;
    return product;
  }
  /// "[12, 3840]".
  std::string text() const {
    std::string out = "[";
    for (std::size_t axis = 0; axis < rank_; ++axis) {
      if (axis > 0) out += ", ";
      out += std::to_string(extents_[axis]);
    }
    return out + "]";
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.extents_ == b.extents_;
  }

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

/// A contiguous tensor somewhere in memory, read-only. Does not own `data`.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  std::size_t size_bytes() const {
    return static_cast<std::size_t>(shape.num_elements()) * gemmad::size_bytes(dtype);
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

/// A contiguous tensor somewhere in memory, writable. Does not own `data`.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  std::size_t size_bytes() const {
    return static_cast<std::size_t>(shape.num_elements()) * gemmad::size_bytes(dtype);
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  operator ConstTensorView() const { return {data, dtype, shape}; }
};

}  // namespace gemmad
