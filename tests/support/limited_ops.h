// The CPU's operations with a device memory of a size that the test sets.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/ops.h"

namespace gemmad {

/// How much device memory there is, and how much of it is in use. Outlives the operations made with it.
struct MemoryLimit {
  std::size_t most_bytes = ~std::size_t{0};
  std::size_t used_bytes = 0;
};

/// Operations on one thread. Allocations beyond `limit` throw std::bad_alloc.
std::unique_ptr<Ops> make_limited_ops(MemoryLimit& limit);

}  // namespace gemmad
