// Results that several readers come for, and a time to live that changes.
#include <string>
#include <variant>

#include "comm/result_store.h"
#include "tests/comm/store_of_pages.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

struct StoreFixture : StoreOfPages {
  ReserveVerdict reserve(JobId job, std::uint64_t num_pages, std::int64_t num_readers = 1,
                         const std::string& name = "") {
    return store.reserve(job, name, num_pages * kPage, num_readers);
  }
  void publish(JobId job, std::uint64_t num_pages, std::int64_t num_readers = 1,
               const std::string& name = "") {
    REQUIRE(reserve(job, num_pages, num_readers, name) == ReserveVerdict::kReserved);
    store.publish(job, {});
  }
  void read_once(JobId job) {
    const AcquireOutcome outcome = store.acquire(job, kReader);
    REQUIRE(std::holds_alternative<Acquired>(outcome));
    REQUIRE(store.release(std::get<Acquired>(outcome).lease, kReader));
  }
  bool is_gone(JobId job) {
    const AcquireOutcome outcome = store.acquire(job, kReader);
    if (const auto* acquired = std::get_if<Acquired>(&outcome)) store.release(acquired->lease, kReader);
    return std::holds_alternative<Gone>(outcome);
  }
};

TEST_CASE_METHOD(StoreFixture, "A result is kept until all its readers have come") {
  publish(1, 8, 3);
  read_once(1);
  read_once(1);
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  read_once(1);
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
  CHECK(is_gone(1));
}

TEST_CASE_METHOD(StoreFixture, "More readers than told of may come while the result is there") {
  publish(1, 8, 1);
  read_once(1);
  read_once(1);
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A name belongs to a result until all its readers have come") {
  publish(1, 1, 2, "x");
  read_once(1);
  CHECK(reserve(2, 1, 1, "x") == ReserveVerdict::kNameInUse);
  read_once(1);
  CHECK(reserve(2, 1, 1, "x") == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A result whose last readers do not come expires all the same") {
  publish(1, 8, 2);
  read_once(1);
  now += kTtl;
  CHECK(reserve(2, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A longer time to live holds for what is published from then on") {
  publish(1, 1);
  store.set_ttl(3 * kTtl);
  publish(2, 1);
  now += kTtl;
  store.expire();
  CHECK(is_gone(1));
  now += 2 * kTtl - milliseconds(1);
  CHECK_FALSE(is_gone(2));
  now += milliseconds(1);
  CHECK(is_gone(2));
}

TEST_CASE_METHOD(StoreFixture, "A shorter time to live is not held up by older results") {
  publish(1, 4);
  store.set_ttl(kTtl / 10);
  publish(2, 4);
  now += kTtl / 10;
  CHECK(reserve(3, 4) == ReserveVerdict::kReserved);
  CHECK(is_gone(2));
}

TEST_CASE_METHOD(StoreFixture, "A leased result outlives a time to live that was made shorter") {
  publish(1, 8);
  const AcquireOutcome outcome = store.acquire(JobId{1}, kReader);
  store.set_ttl(kTtl / 10);
  now += kTtl;
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  store.release(std::get<Acquired>(outcome).lease, kReader);
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A shorter time to live is not held up by older failures") {
  store.fail(1, "", {"cancelled", ""});
  store.set_ttl(kTtl / 10);
  store.fail(2, "", {"cancelled", ""});
  now += kTtl / 10;
  CHECK(is_gone(2));
}

}  // namespace
}  // namespace gemmad
