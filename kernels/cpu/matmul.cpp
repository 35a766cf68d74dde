#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"

namespace gemmad::cpu {

// Each thread computes a stripe of y and packs all of the operand that is not cut; so the longer side is cut.
void gemm(ThreadPool& pool, ConstTensorView x, ConstTensorView w, TensorView y) {
  constexpr std::int64_t kGrain = 16;  // a multiple of the row and column counts of BLAS kernels
  const std::int64_t num_rows = x.shape[0];
  const std::int64_t depth = x.shape[1];
  const std::int64_t num_columns = w.shape[0];
  const bool cut_rows = num_rows > num_columns;
  const std::int64_t length = cut_rows ? num_rows : num_columns;
  const std::int64_t fair = (length + pool.num_threads() - 1) / pool.num_threads();
  const std::int64_t stripe = (fair + kGrain - 1) / kGrain * kGrain;
  if (num_rows == 0 || num_columns == 0) return;

  pool.run((length + stripe - 1) / stripe, [&](std::int64_t index, int) {
    const std::int64_t begin = index * stripe;
    const std::int64_t count = std::min(stripe, length - begin);
    if (cut_rows) {
      gemm_nt(count, num_columns, depth, {x.as<float>() + begin * depth, depth}, {w.as<float>(), depth},
              false, {y.as<float>() + begin * num_columns, num_columns});
    } else {
      gemm_nt(num_rows, count, depth, {x.as<float>(), depth}, {w.as<float>() + begin * depth, depth}, false,
              {y.as<float>() + begin, num_columns});
    }
  });
}

}  // namespace gemmad::cpu
