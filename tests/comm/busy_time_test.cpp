#include "comm/busy_time.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

TEST_CASE("processes that share cores wait busily for as long as they are told") {
  CHECK(busy_time(1'000'000, std::chrono::microseconds(7)) == std::chrono::microseconds(7));
}

}  // namespace
}  // namespace gemmad
