#include "comm/doorbell.h"

#include <poll.h>

#include <optional>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

bool is_readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1;
}

TEST_CASE("a doorbell that was not rung stays silent") {
  Doorbell bell;
  CHECK_FALSE(is_readable(bell.fd(), 0));
  CHECK_FALSE(bell.answer());
}

TEST_CASE("a ring makes the descriptor readable until it is answered") {
  Doorbell here;
  Doorbell there;
  REQUIRE(there.ring(here.address()));
  CHECK(is_readable(here.fd(), 1000));
  CHECK(here.answer());
  CHECK_FALSE(is_readable(here.fd(), 0));
  CHECK_FALSE(here.answer());
}

TEST_CASE("one answer takes all rings") {
  Doorbell here;
  Doorbell there;
  for (int i = 0; i < 5; ++i)
    REQUIRE(there.ring(here.address()));
  CHECK(here.answer());
  CHECK_FALSE(here.answer());
}

TEST_CASE("ringing more often than anybody answers neither waits nor fails") {
  Doorbell here;
  Doorbell there;
  for (int i = 0; i < 10'000; ++i)
    REQUIRE(there.ring(here.address()));
  CHECK(here.answer());
}

TEST_CASE("ringing where nobody is any more says so") {
  Doorbell there;
  std::optional<Doorbell> here(std::in_place);
  const DoorbellAddress address = here->address();
  here.reset();
  CHECK_FALSE(there.ring(address));
  CHECK_FALSE(there.ring(DoorbellAddress{}));
}

}  // namespace
}  // namespace gemmad
