#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"

namespace gemmad::cpu {

// Each thread computes a stripe of y and packs all of the operand that is not cut; so the longer side is cut.
void gemm(ThreadPool& pool, ConstTensorView x, ConstMatrixView w, MatrixView y) {
  constexpr std::int64_t kGrain = 16;  // a multiple of the row and column counts of BLAS kernels
  const bool cut_rows = y.rows > y.columns;
  const std::int64_t length = cut_rows ? y.rows : y.columns;
  const std::int64_t fair = (length + pool.num_threads() - 1) / pool.num_threads();
  const std::int64_t stripe = (fair + kGrain - 1) / kGrain * kGrain;
  if (y.rows == 0 || y.columns == 0) return;

  const ConstMatrixView all_x = x;
  // BLAS takes no matrix without columns; the sum over nothing is zero.
  if (all_x.columns == 0) {
    for (std::int64_t row = 0; row < y.rows; ++row)
      std::fill_n(y.as<float>() + row * y.row_stride, y.columns, 0.0f);
    return;
  }
  pool.run((length + stripe - 1) / stripe, [&](std::int64_t index, int) {
    const std::int64_t begin = index * stripe;
    const std::int64_t end = std::min(begin + stripe, length);
    const ConstMatrixView a = cut_rows ? all_x.row_range(begin, end) : all_x;
    const ConstMatrixView b = cut_rows ? w : w.row_range(begin, end);
    const MatrixView c = cut_rows ? y.row_range(begin, end) : y.column_range(begin, end);
    gemm_nt(c.rows, c.columns, a.columns, {a.as<float>(), a.row_stride}, {b.as<float>(), b.row_stride}, false,
            {c.as<float>(), c.row_stride});
  });
}

}  // namespace gemmad::cpu
