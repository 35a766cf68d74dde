#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/op_testing.h"

namespace gemmad {

std::unique_ptr<Ops> make_test_ops(int num_threads) {
  return make_cpu_ops(num_threads);
}

}  // namespace gemmad
