#include "kernels/cuda/cuda_ops.h"
#include "tests/kernels/op_testing.h"

namespace gemmad {

std::unique_ptr<Ops> make_test_ops(int num_threads) {
  return make_cuda_ops({0, num_threads, {}});
}

}  // namespace gemmad
