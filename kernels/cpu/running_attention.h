// softmax(q k^T) v with a running softmax over pieces of keys: what both kinds of attention are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace gemmad::cpu {

/// Some rows of queries, all of which are multiplied with the same keys, piece after piece. One thread's: it
/// is its scratch memory too, which grows with the most rows and the widest heads seen.
class RunningAttention {
 public:
  static constexpr std::int64_t kKeys = 512;  // at most in a piece

  /// The keys of a piece that a row sees: [first, last).
  struct Seen {
    std::int64_t first;
    std::int64_t last;
  };

  /// Makes room, so that begin() with as many rows of as many columns allocates nothing.
  void reserve(std::int64_t num_rows, std::int64_t width);

  /// Forgets what was before. Each row must be set before the first keys are added.
  void begin(std::int64_t num_rows, std::int64_t width);

  /// The scale goes into the query: one product an element of it, not one a score.
  void set_query(std::int64_t row, const float* query, float scale);

  /// keys, values: [num_keys, width]. see(row) -> Seen.
  template <typename See>
  void add_keys(ConstMatrix keys, ConstMatrix values, std::int64_t num_keys, const See& see) {
    multiply_keys(keys, num_keys);
    for (std::int64_t row = 0; row < num_rows_; ++row)
      soften(row, num_keys, see(row));
    add_values(values, num_keys);
  }

  /// to: [width]. The row must have seen a key.
  void write(std::int64_t row, float* to) const;

 private:
  void multiply_keys(ConstMatrix keys, std::int64_t num_keys);
  void soften(std::int64_t row, std::int64_t num_keys, Seen seen);
  void add_values(ConstMatrix values, std::int64_t num_keys);

  std::int64_t num_rows_ = 0;
  std::int64_t width_ = 0;
  bool has_sums_ = false;
  std::vector<float> queries_;  // [rows, width]
  std::vector<float> scores_;   // [rows, keys of a piece]
  std::vector<float> sums_;     // [rows, width]
  std::vector<float> row_max_;  // [rows]
  std::vector<float> row_sum_;  // [rows]
};

}  // namespace gemmad::cpu
