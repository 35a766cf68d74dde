#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Cuts a product into a stripe for each thread and calls task(rows, columns, worker) for each. A thread packs
// all of the operand that is not cut; so the longer side is cut.
template <typename Task>
void for_stripes(ThreadPool& pool, std::int64_t rows, std::int64_t columns, const Task& task) {
  constexpr std::int64_t kGrain = 16;  // a multiple of the row and column counts of BLAS kernels
  const bool cut_rows = rows > columns;
  const std::int64_t length = cut_rows ? rows : columns;
  const std::int64_t fair = (length + pool.num_threads() - 1) / pool.num_threads();
  const std::int64_t stripe = (fair + kGrain - 1) / kGrain * kGrain;
  if (rows == 0 || columns == 0) return;
  pool.run((length + stripe - 1) / stripe, [&](std::int64_t index, int worker) {
    const Range part{index * stripe, std::min((index + 1) * stripe, length)};
    task(cut_rows ? part : Range{0, rows}, cut_rows ? Range{0, columns} : part, worker);
  });
}

// c := rows of x times rows of w, or c += them.
void multiply(ConstMatrixView x, Range rows, ConstMatrixView w, Range columns, bool accumulate, Matrix c) {
  const std::int64_t num_rows = rows.end - rows.begin;
  const std::int64_t num_columns = columns.end - columns.begin;
  // BLAS takes no matrix without columns; the sum over nothing is zero.
  if (x.columns == 0) {
    for (std::int64_t row = 0; row < num_rows && !accumulate; ++row)
      std::fill_n(c.data + row * c.stride, num_columns, 0.0f);
    return;
  }
  gemm_nt(num_rows, num_columns, x.columns, {x.as<float>() + rows.begin * x.row_stride, x.row_stride},
          {w.as<float>() + columns.begin * w.row_stride, w.row_stride}, accumulate, c);
}

void gemm(ThreadPool& pool, ConstMatrixView x, ConstMatrixView w, bool accumulate, MatrixView y) {
  for_stripes(pool, y.rows, y.columns, [&](Range rows, Range columns, int) {
    multiply(x, rows, w, columns, accumulate,
             {y.as<float>() + rows.begin * y.row_stride + columns.begin, y.row_stride});
  });
}

GEMMAD_MULTIVERSION void add_row(const float* a, const float* b, float* out, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = a[i] + b[i];
}

GEMMAD_MULTIVERSION void gelu_row(float* row, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    row[i] = gelu_tanh(row[i]);
}

}  // namespace

void gemm(ThreadPool& pool, ConstTensorView x, ConstMatrixView w, MatrixView y) {
  gemm(pool, x, w, false, y);
}

void gemm_sums(ThreadPool& pool, ConstTensorView x, ConstTensorView w, bool adds, TensorView sums) {
  gemm(pool, x, w, adds, sums);
}

void add_bias(ThreadPool& pool, ConstTensorView sums, ConstTensorView bias, TensorView out) {
  const std::int64_t width = out.shape[1];
  for_row_blocks(pool, out.shape[0], width, [&](std::int64_t begin, std::int64_t end) {
    const float* from = sums.as<float>();
    if (bias.data == nullptr) {
      std::copy(from + begin * width, from + end * width, out.as<float>() + begin * width);
      return;
    }
    for (std::int64_t n = begin; n < end; ++n)
      add_row(from + n * width, bias.as<float>(), out.as<float>() + n * width, width);
  });
}

Linear::Linear(ThreadPool& pool) : pool_(pool), tiles_(static_cast<std::size_t>(pool.num_threads())) {}

void Linear::run(const Ops::Linear& args) {
  // Added to in place, y cannot hold the bare product: a tile does. Fewer rows a tile would pack the weight
  // too often.
  constexpr std::int64_t kTileRows = 256;
  const bool in_place = args.add.data == args.y.data;
  const std::int64_t num_columns = args.y.shape[1];
  for_stripes(pool_, args.y.shape[0], num_columns, [&](Range rows, Range columns, int worker) {
    const std::int64_t width = columns.end - columns.begin;
    const std::int64_t step = in_place ? kTileRows : rows.end - rows.begin;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += step) {
      const Range some{begin, std::min(begin + step, rows.end)};
      Matrix product{args.y.as<float>() + begin * num_columns + columns.begin, num_columns};
      if (in_place) {
        std::vector<float>& tile = tiles_[static_cast<std::size_t>(worker)];
        const auto size = static_cast<std::size_t>((some.end - some.begin) * width);
        if (tile.size() < size) tile.resize(size);
        product = {tile.data(), width};
      }
      multiply(args.x, some, args.w, columns, false, product);
      for (std::int64_t n = some.begin; n < some.end; ++n) {
        float* const row = product.data + (n - some.begin) * product.stride;
        const std::int64_t at = n * num_columns + columns.begin;
        if (args.bias.data != nullptr) add_row(row, args.bias.as<float>() + columns.begin, row, width);
        if (args.activation == Activation::kGelu) gelu_row(row, width);
        if (args.add.data != nullptr) add_row(row, args.add.as<float>() + at, args.y.as<float>() + at, width);
      }
    }
  });
}

}  // namespace gemmad::cpu
