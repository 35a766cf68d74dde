// Compares tensors with a budget, so that no single bad row, NaN or mixed-up axis hides among good values.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/base/tensor.h"

namespace gemmad {

/// What a comparison found. Use: INFO(result.report); CHECK(result.ok).
struct Comparison {
  bool ok = false;
  double share_used =
      0;  // largest error as a share of the budget; above 1 is a failure; infinite for NaN and the like
  std::string report;  // the worst place: coordinate, both values, share of the budget
};

/// Relative L2 error, |actual - expected| / |expected|, of the whole and of each row (all but the last axis)
/// alike, must not exceed `limit`. Fails on another shape, on any value that is not finite, and on a row
/// whose expected values are all zero unless it is zero too. Both F32, on the host.
Comparison compare_rows(ConstTensorView actual, ConstTensorView expected, double limit);

/// The same with a limit of its own for rows.
Comparison compare_rows(ConstTensorView actual, ConstTensorView expected, double limit, double row_limit);

/// |actual - expected| <= absolute + relative * |expected| for each element. Fails on another number of
/// elements and on any value that is not finite. `actual` F32, on the host.
Comparison compare_elements(ConstTensorView actual, std::span<const double> expected, double absolute,
                            double relative);

/// The same bytes: type, shape and every bit.
Comparison compare_bits(ConstTensorView actual, ConstTensorView expected);

}  // namespace gemmad
