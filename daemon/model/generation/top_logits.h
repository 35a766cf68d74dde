// The largest of very many logits, found without a look at most of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/tensor.h"

namespace gemmad {

struct Logit {
  float value = 0;
  std::int32_t id = 0;

  bool operator==(const Logit&) const = default;
};

/// By falling value, of equal ones by rising id: the order of all that is chosen here.
inline bool is_before(const Logit& a, const Logit& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

/// Drops those below the k-th largest; ties with it stay. Drops none where there are no more than k.
void keep_largest(std::vector<Logit>& logits, std::size_t k);

/// Finds the largest of a row; keeps memory between calls, nothing else. One caller at a time.
class TopLogits {
 public:
  /// Sets `found` to the finite ones of `logits` that are not below the k-th largest finite one, ties with it
  /// included, in any order; all finite ones for k = 0. `logits`: on the host, [V], F32 or BF16. Throws
  /// std::invalid_argument for another type or shape, or V beyond 2^31 - 1.
  void find(ConstTensorView logits, std::size_t k, std::vector<Logit>& found);

 private:
  /// Appends at least the wanted ones, given the maxima.
  template <typename Format>
  void collect(const ConstTensorView& logits, std::size_t k, std::vector<Logit>& found);

  std::vector<std::int32_t> maxima_;  // of the row's blocks, as keys
  std::vector<std::int32_t> sorted_;  // the same, partly in order
};

}  // namespace gemmad
