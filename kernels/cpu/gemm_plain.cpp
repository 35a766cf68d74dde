// A plain blocked product for builds without OpenBLAS: right and tidy, a good deal slower.
#include <algorithm>
#include <array>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {
namespace {

constexpr std::int64_t kDepth = 256;   // of one packed panel of B
constexpr std::int64_t kColumns = 32;  // of one packed panel of B
constexpr std::int64_t kRows = 4;      // of C, computed at a time

using Panel = std::array<float, kDepth * kColumns>;  // 32 KiB: stays in the first cache

// C[rows, columns] += A[rows, depth] panel[depth, kColumns]; columns past the matrix are zero in the panel
// and not stored.
template <std::int64_t kRowsHere>
GEMMAD_INLINE void multiply_rows(std::int64_t depth, std::int64_t columns, ConstMatrix a, const float* panel,
                                 Matrix c) {
  float sums[kRowsHere][kColumns] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    for (std::int64_t row = 0; row < kRowsHere; ++row) {
      const float factor = a.data[row * a.stride + p];
#pragma omp simd
      for (std::int64_t column = 0; column < kColumns; ++column) {
        sums[row][column] += factor * panel[p * kColumns + column];
      }
    }
  }
  for (std::int64_t row = 0; row < kRowsHere; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      c.data[row * c.stride + column] += sums[row][column];
  }
}

GEMMAD_MULTIVERSION void multiply_panel(std::int64_t m, std::int64_t depth, std::int64_t columns,
                                        ConstMatrix a, const float* panel, Matrix c) {
  std::int64_t row = 0;
  for (; row + kRows <= m; row += kRows) {
    multiply_rows<kRows>(depth, columns, {a.data + row * a.stride, a.stride}, panel,
                         {c.data + row * c.stride, c.stride});
  }
  for (; row < m; ++row) {
    multiply_rows<1>(depth, columns, {a.data + row * a.stride, a.stride}, panel,
                     {c.data + row * c.stride, c.stride});
  }
}

// element(p, j) is B's element that meets A's column p and gives C's column j.
template <typename Element>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, bool accumulate, Matrix c,
              const Element& element) {
  if (!accumulate) {
    for (std::int64_t row = 0; row < m; ++row)
      std::fill_n(c.data + row * c.stride, n, 0.0f);
  }
  alignas(64) Panel panel;
  for (std::int64_t first = 0; first < n; first += kColumns) {
    const std::int64_t columns = std::min(kColumns, n - first);
    for (std::int64_t begin = 0; begin < k; begin += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - begin);
      panel.fill(0.0f);
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t p = 0; p < depth; ++p) {
          panel[static_cast<std::size_t>(p * kColumns + column)] = element(begin + p, first + column);
        }
      }
      multiply_panel(m, depth, columns, {a.data + begin, a.stride}, panel.data(), {c.data + first, c.stride});
    }
  }
}

}  // namespace

void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c) {
  multiply(m, n, k, a, accumulate, c,
           [&](std::int64_t p, std::int64_t j) { return b.data[j * b.stride + p]; });
}

void gemm_nn(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a, ConstMatrix b, bool accumulate,
             Matrix c) {
  multiply(m, n, k, a, accumulate, c,
           [&](std::int64_t p, std::int64_t j) { return b.data[p * b.stride + j]; });
}

void warm_up_gemm() {}

void prepare_gemm() {}

std::string gemm_description() {
  return "plain GEMM (built without OpenBLAS)";
}

}  // namespace gemmad::cpu
