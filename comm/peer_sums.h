// Memory in which the members of a group sum without a library between them.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/base/peer_addends.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// From how many bytes on a sum over R members is quicker in two steps. A link into a device carries R - 1
/// times the bytes in one step, 2 (R - 1) / R times in two, which meet once more; kMeanwhile is what it
/// carries in the time of that: 3.9 us at 430 GB/s, measured on two H200 (tests/bench/peer_sum_bench.cpp).
constexpr std::int64_t two_steps_from_bytes(int members) {
  constexpr std::int64_t kMeanwhile = 1'680'000;
  if (members <= 2) return std::numeric_limits<std::int64_t>::max();
  return kMeanwhile * members / ((members - 1) * (members - 2));
}

/// Two buffers for addends, used in turn: every member writes its own, and the operation that needs the sum
/// reads those of all. Used by one thread.
class PeerSums {
 public:
  virtual ~PeerSums() = default;
  /// The tensor at the beginning of this rank's buffer `which`, 0 or 1. Valid until close(). Throws
  /// std::out_of_range when it does not fit.
  virtual TensorView own(int which, DType dtype, const Shape& shape) const = 0;
  /// For the sum over buffers `which` of all members. Valid until close().
  virtual PeerAddends addends(int which) const = 0;
  /// Collective. Gives everything back: nobody's memory is freed before all have let go of it. This rank's
  /// work with it is done, and graphs that use it are not started again. Throws BootstrapError; then what is
  /// left stays until the process ends. So it does without close(): others may be reading it.
  virtual void close() = 0;
};

}  // namespace gemmad
