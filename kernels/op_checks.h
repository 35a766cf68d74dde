// What the launchers check with. Each check throws OpError that names operation, argument, what it is and
// what it must be. For the launchers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/ops.h"

namespace gemmad {

/// Collects what one call must satisfy, so that each failure names operation and argument.
class Checker {
 public:
  Checker(const char* op, DType compute_dtype) : op_(op), compute_dtype_(compute_dtype) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw OpError(std::string(op_) + ": " + problem);
  }

  void rank(const char* argument, const ConstTensorView& tensor, std::size_t rank) const {
    if (tensor.shape.rank() != rank) {
      fail(std::string(argument) + " has shape " + tensor.shape.text() + ", must have " +
           std::to_string(rank) + " extents");
    }
  }

  void tensor(const char* argument, const ConstTensorView& tensor, const Shape& shape, DType dtype) const {
    if (!(tensor.shape == shape)) {
      fail(std::string(argument) + " has shape " + tensor.shape.text() + ", must be " + shape.text());
    }
    if (tensor.dtype != dtype) {
      fail(std::string(argument) + " is " + std::string(name(tensor.dtype)) + ", must be " +
           std::string(name(dtype)));
    }
    if (tensor.data == nullptr && tensor.shape.num_elements() > 0)
      fail(std::string(argument) + " has no data");
  }

  void tensor(const char* argument, const ConstTensorView& view, const Shape& shape) const {
    tensor(argument, view, shape, compute_dtype_);
  }

  void matrix(const char* argument, const ConstMatrixView& view, std::int64_t rows, std::int64_t columns,
              DType dtype) const {
    if (view.rows < 0 || view.columns < 0 || view.row_stride < view.columns) {
      fail(std::string(argument) + " has " + std::to_string(view.rows) + " rows of " +
           std::to_string(view.columns) + " columns, " + std::to_string(view.row_stride) +
           " elements from row to row, must be at least a row's columns");
    }
    tensor(argument, {view.data, view.dtype, {view.rows, view.columns}}, Shape{rows, columns}, dtype);
  }

  void apart(const char* first_name, const ConstTensorView& first, const char* second_name,
             const ConstTensorView& second) const {
    const auto* first_begin = static_cast<const std::byte*>(first.data);
    const auto* second_begin = static_cast<const std::byte*>(second.data);
    const bool overlap = std::less<>()(first_begin, second_begin + second.size_bytes()) &&
                         std::less<>()(second_begin, first_begin + first.size_bytes());
    if (overlap) fail(std::string(first_name) + " and " + second_name + " overlap");
  }

 private:
  const char* op_;
  DType compute_dtype_;
};

inline bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

inline void check_table(const Checker& check, const ConstTensorView& table) {
  if (!is_float(table.dtype))
    check.fail("table is " + std::string(name(table.dtype)) + ", must be BF16, F16 or F32");
}

inline void check_heads(const Checker& check, const HeadLayout& heads) {
  if (!(heads.num_kv_heads > 0 && heads.num_heads > 0 && heads.num_heads % heads.num_kv_heads == 0))
    check.fail("num_heads is " + std::to_string(heads.num_heads) +
               ", must be a positive multiple of num_kv_heads, " + std::to_string(heads.num_kv_heads));
  if (!(heads.head_dim > 0 && heads.head_dim % 2 == 0))
    check.fail("head_dim is " + std::to_string(heads.head_dim) + ", must be positive and even");
}

inline void check_eps(const Checker& check, float eps) {
  if (!(eps >= 0)) check.fail("eps is " + std::to_string(eps) + ", must not be negative");
}

inline void check_scale(const Checker& check, float scale) {
  if (!(scale > 0)) check.fail("scale is " + std::to_string(scale) + ", must be positive");
}

inline void check_window(const Checker& check, std::int64_t window) {
  if (!(window >= 0)) check.fail("window is " + std::to_string(window) + ", must not be negative");
}

}  // namespace gemmad
