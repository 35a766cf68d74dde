// Element types, shapes and non-owning views of tensors and matrices. Views never own; who owns is said where
// the view is handed out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

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

/// A matrix somewhere in memory, each row contiguous, the rows apart by any distance: the whole of a tensor
/// or some rows and columns of a larger matrix. Does not own `data`. Data is void or const void.
template <typename Data>
struct BasicMatrixView {
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Data>, const T, T>;

  Data* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // elements from one row to the next, at least `columns`

  /// From the first byte to the last, with what lies between the rows.
  std::size_t span_bytes() const {
    if (rows == 0 || columns == 0) return 0;
    return static_cast<std::size_t>((rows - 1) * row_stride + columns) * size_bytes(dtype);
  }
  template <typename T>
  Element<T>* as() const {
    return static_cast<Element<T>*>(data);
  }
  /// Rows [begin, end) of this matrix, in the same memory. Throws std::out_of_range when it lacks them.
  BasicMatrixView row_range(std::int64_t begin, std::int64_t end) const {
    check_range("rows", begin, end, rows);
    return {element(begin * row_stride), dtype, end - begin, columns, row_stride};
  }
  /// Columns [begin, end) of this matrix, in the same memory. Throws std::out_of_range when it lacks them.
  BasicMatrixView column_range(std::int64_t begin, std::int64_t end) const {
    check_range("columns", begin, end, columns);
    return {element(begin), dtype, rows, end - begin, row_stride};
  }
  operator BasicMatrixView<const void>() const requires(!std::is_const_v<Data>) {
    return {data, dtype, rows, columns, row_stride};
  }

 private:
  Data* element(std::int64_t index) const {
    return as<std::byte>() + index * static_cast<std::int64_t>(size_bytes(dtype));
  }
  static void check_range(const char* what, std::int64_t begin, std::int64_t end, std::int64_t count) {
    if (begin < 0 || begin > end || end > count) {
      throw std::out_of_range(std::string(what) + " [" + std::to_string(begin) + ", " + std::to_string(end) +
                              ") of a matrix of " + std::to_string(count));
    }
  }
};

using ConstMatrixView = BasicMatrixView<const void>;
using MatrixView = BasicMatrixView<void>;

/// The matrix that a tensor's `data` and `shape` are. Throws std::invalid_argument unless it has two extents.
template <typename Data>
BasicMatrixView<Data> as_matrix(Data* data, DType dtype, const Shape& shape) {
  if (shape.rank() != 2) throw std::invalid_argument("a matrix has two extents, not " + shape.text());
  return {data, dtype, shape[0], shape[1], shape[1]};
}

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
  operator ConstMatrixView() const { return as_matrix(data, dtype, shape); }
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
  operator MatrixView() const { return as_matrix(data, dtype, shape); }
  operator ConstMatrixView() const { return as_matrix<const void>(data, dtype, shape); }
};

}  // namespace gemmad
