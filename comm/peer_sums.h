// Memory in which the members of a group sum without a library between them.
#pragma once

#include "kernels/base/peer_addends.h"
#include "kernels/base/tensor.h"

namespace gemmad {

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
