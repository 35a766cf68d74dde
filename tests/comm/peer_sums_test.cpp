#include "comm/peer_sums.h"

#include "tests/support/catch.h"

namespace gemmad {

TEST_CASE("Two members sum in one step, more of them in two from fewer bytes on") {
  CHECK(two_steps_from_bytes(2) == std::numeric_limits<std::int64_t>::max());
  CHECK(two_steps_from_bytes(3) == 2'520'000);
  CHECK(two_steps_from_bytes(4) == 1'120'000);
  CHECK(two_steps_from_bytes(8) == 320'000);
}

}  // namespace gemmad
