#include "comm/result_store.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include "comm/segment_layout.h"
#include "tests/comm/store_of_pages.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

constexpr ConnectionId kOtherReader = 2;

struct StoreFixture : StoreOfPages {
  StoreFixture() : StoreOfPages({.max_failures = 4, .max_results = 16}) {}

  ReserveVerdict reserve(JobId job, std::uint64_t num_pages, const std::string& name = "") {
    return store.reserve(job, name, num_pages * kPage);
  }
  void publish(JobId job, std::uint64_t num_pages, const std::string& name = "") {
    REQUIRE(reserve(job, num_pages, name) == ReserveVerdict::kReserved);
    store.publish(job, {});
  }
  LeaseId lease(const ResultKey& key, ConnectionId connection = kReader) {
    const AcquireOutcome outcome = store.acquire(key, connection);
    REQUIRE(std::holds_alternative<Acquired>(outcome));
    return std::get<Acquired>(outcome).lease;
  }
  void acquire_and_release(const ResultKey& key) { REQUIRE(store.release(lease(key), kReader)); }

  template <typename Outcome>
  bool is(const ResultKey& key) {
    const AcquireOutcome outcome = store.acquire(key, kReader);
    if (const auto* acquired = std::get_if<Acquired>(&outcome)) store.release(acquired->lease, kReader);
    return std::holds_alternative<Outcome>(outcome);
  }
};

ResultKey name(const char* text) {
  return std::string(text);
}
ResultKey job(JobId id) {
  return id;
}

TEST_CASE_METHOD(StoreFixture, "A job is pending until it is published, then its results are leased") {
  CHECK(is<Pending>(job(1)));
  REQUIRE(reserve(1, 2, "x") == ReserveVerdict::kReserved);
  CHECK(is<Pending>(job(1)));
  CHECK(is<Pending>(name("x")));
  const std::uint64_t offset = store.block_offset(1);
  CHECK(offset % kPage == 0);
  CHECK(offset >= kSegmentHeaderBytes);
  CHECK(store.block(1).data() == segment.bytes().data() + offset);
  CHECK(store.block(1).size() == 2 * kPage);

  PromptResult prompt;
  prompt.ok = true;
  prompt.num_tokens = 3;
  prompt.tensors = {{"hidden_states.0", DType::kF32, Shape{3, 4}, offset, 48}};
  store.publish(1, {prompt, PromptResult{}});
  for (const ResultKey& key : {job(1), name("x")}) {
    const AcquireOutcome outcome = store.acquire(key, kReader);
    REQUIRE(std::holds_alternative<Acquired>(outcome));
    const auto& acquired = std::get<Acquired>(outcome);
    CHECK(acquired.job == 1);
    REQUIRE(acquired.prompts->size() == 2);
    CHECK(acquired.prompts->at(0).tensors.at(0).name == "hidden_states.0");
  }
  CHECK(store.stats().num_leases == 2);
}

TEST_CASE_METHOD(StoreFixture, "A job of no bytes needs no space") {
  publish(1, 8);
  publish(2, 0, "empty");
  CHECK(is<Acquired>(name("empty")));
  CHECK(store.stats().used_bytes == 8 * kPage);
}

TEST_CASE_METHOD(StoreFixture, "More than the segment holds never fits, whatever is free") {
  CHECK(reserve(1, 9) == ReserveVerdict::kTooLarge);
  CHECK(store.reserve(1, "", ~std::uint64_t{0}) == ReserveVerdict::kTooLarge);
  CHECK(reserve(1, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Results whose leases have ended go first, the oldest before the younger") {
  publish(1, 2);
  publish(2, 2);
  publish(3, 2);
  publish(4, 2);
  acquire_and_release(job(3));
  acquire_and_release(job(2));
  CHECK(reserve(5, 2) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(2)));
  CHECK(is<Acquired>(job(3)));
  CHECK(reserve(6, 2) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(3)));
}

TEST_CASE_METHOD(StoreFixture, "A released result stays while there is room") {
  publish(1, 2);
  acquire_and_release(job(1));
  publish(2, 6);
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A result that nobody acquired yet is never evicted before its time") {
  publish(1, 8);
  now += kTtl - milliseconds(1);
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A leased result is never evicted, however old") {
  publish(1, 8);
  const LeaseId lease_id = lease(job(1));
  now += 10 * kTtl;
  store.expire();
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  CHECK(store.release(lease_id, kReader));
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A result acquired twice leaves only after both leases") {
  publish(1, 8);
  const LeaseId first = lease(job(1));
  const LeaseId second = lease(job(1), kOtherReader);
  CHECK(store.release(first, kReader));
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  CHECK(store.release(second, kOtherReader));
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Space in pieces is joined when the results between leave") {
  for (JobId id = 1; id <= 4; ++id)
    publish(id, 2);
  for (JobId id = 1; id <= 4; ++id)
    acquire_and_release(job(id));
  CHECK(reserve(5, 8) == ReserveVerdict::kReserved);
  CHECK(store.stats().used_bytes == 8 * kPage);
}

TEST_CASE_METHOD(StoreFixture, "Results that nobody reads expire and free their space") {
  publish(1, 4, "x");
  now += kTtl;
  store.expire();
  CHECK(store.stats().used_bytes == 0);
  CHECK(is<Gone>(job(1)));
  CHECK(is<Pending>(name("x")));
}

TEST_CASE_METHOD(StoreFixture, "Reserving expires by itself") {
  publish(1, 8);
  now += kTtl;
  CHECK(reserve(2, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Time to live counts from publication") {
  REQUIRE(reserve(1, 1) == ReserveVerdict::kReserved);
  now += 5 * kTtl;
  store.publish(1, {});
  now += kTtl - milliseconds(1);
  store.expire();
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A name is in use until its result was acquired and released") {
  REQUIRE(reserve(1, 1, "x") == ReserveVerdict::kReserved);
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kNameInUse);
  store.publish(1, {});
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kNameInUse);
  const LeaseId lease_id = lease(name("x"));
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kNameInUse);
  store.release(lease_id, kReader);
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kReserved);
  CHECK(is<Pending>(name("x")));
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A name is free again once its result has expired") {
  publish(1, 1, "x");
  now += kTtl;
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A name is free again once its job has failed") {
  REQUIRE(reserve(1, 1, "x") == ReserveVerdict::kReserved);
  store.fail(1, "x", {"cancelled", "the client left"});
  CHECK(is<Failed>(name("x")));
  CHECK(reserve(2, 1, "x") == ReserveVerdict::kReserved);
  CHECK(is<Pending>(name("x")));
  CHECK(is<Failed>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A job refused for its name leaves the name to its holder") {
  publish(1, 1, "x");
  REQUIRE(reserve(2, 1, "x") == ReserveVerdict::kNameInUse);
  store.fail(2, "x", {"name_in_use", "taken"});
  CHECK(is<Failed>(job(2)));
  CHECK(is<Acquired>(name("x")));
}

TEST_CASE_METHOD(StoreFixture, "An evicted result does not take the name of a later one along") {
  publish(1, 4, "x");
  acquire_and_release(name("x"));
  publish(2, 4, "x");
  CHECK(reserve(3, 4) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(1)));
  CHECK(is<Acquired>(name("x")));
}

TEST_CASE_METHOD(StoreFixture, "A failure gives its reservation back and tells late readers why") {
  REQUIRE(reserve(1, 8, "x") == ReserveVerdict::kReserved);
  store.fail(1, "x", {"out_of_memory", "no memory for the layer"});
  CHECK(store.stats().used_bytes == 0);
  const AcquireOutcome outcome = store.acquire(job(1), kReader);
  REQUIRE(std::holds_alternative<Failed>(outcome));
  CHECK(std::get<Failed>(outcome).failure.code == "out_of_memory");
  CHECK(std::get<Failed>(outcome).failure.message == "no memory for the layer");
}

TEST_CASE_METHOD(StoreFixture, "A failure without a reservation is told too, and forgotten after its time") {
  store.fail(7, "x", {"buffers_exhausted", "no space"});
  CHECK(is<Failed>(job(7)));
  CHECK(is<Failed>(name("x")));
  now += kTtl;
  CHECK(is<Gone>(job(7)));
  CHECK(is<Pending>(name("x")));
}

TEST_CASE_METHOD(StoreFixture, "Failures remembered are bounded, the oldest goes") {
  for (JobId id = 1; id <= 5; ++id)
    store.fail(id, "", {"cancelled", ""});
  CHECK(is<Gone>(job(1)));
  CHECK(is<Failed>(job(2)));
  CHECK(is<Failed>(job(5)));
}

TEST_CASE_METHOD(StoreFixture, "A published job can no longer fail") {
  publish(1, 1);
  store.fail(1, "", {"cancelled", ""});
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A reservation given back leaves no trace, and the job may come again") {
  REQUIRE(reserve(1, 8, "x") == ReserveVerdict::kReserved);
  store.release_reservation(1);
  CHECK(store.stats().used_bytes == 0);
  CHECK(is<Pending>(job(1)));
  CHECK(is<Pending>(name("x")));
  CHECK(reserve(2, 4, "x") == ReserveVerdict::kReserved);
  CHECK(reserve(1, 4) == ReserveVerdict::kReserved);
  store.release_reservation(99);
}

TEST_CASE_METHOD(StoreFixture, "An older job that has not run yet is pending, not gone") {
  publish(5, 1);
  CHECK(is<Pending>(job(4)));
  now += kTtl;
  store.expire();
  CHECK(is<Gone>(job(5)));
  CHECK(is<Pending>(job(4)));
}

TEST_CASE_METHOD(StoreFixture, "Results without bytes are bounded as well") {
  for (JobId id = 1; id <= 16; ++id)
    publish(id, 0);
  CHECK(reserve(17, 0) == ReserveVerdict::kNoSpace);
  acquire_and_release(job(9));
  CHECK(reserve(17, 0) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(9)));
}

TEST_CASE_METHOD(StoreFixture, "A lease ends only by the connection that holds it, and once") {
  publish(1, 1);
  const LeaseId lease_id = lease(job(1));
  CHECK_FALSE(store.release(lease_id, kOtherReader));
  CHECK_FALSE(store.release(lease_id + 1, kReader));
  CHECK(store.stats().num_leases == 1);
  CHECK(store.release(lease_id, kReader));
  CHECK_FALSE(store.release(lease_id, kReader));
}

TEST_CASE_METHOD(StoreFixture, "A connection that ends gives all its leases back and no other's") {
  publish(1, 2);
  publish(2, 3);
  lease(job(1));
  lease(job(1));
  lease(job(2));
  lease(job(2), kOtherReader);
  CHECK(store.stats().leased_bytes == 5 * kPage);
  store.release_all(kReader);
  CHECK(store.stats().num_leases == 1);
  CHECK(store.stats().leased_bytes == 3 * kPage);
}

TEST_CASE_METHOD(StoreFixture, "Figures say what is there") {
  publish(1, 2);
  REQUIRE(store.reserve(2, "", 1) == ReserveVerdict::kReserved);
  const auto stats = store.stats();
  CHECK(stats.segment_bytes == kSegmentHeaderBytes + 8 * kPage);
  CHECK(stats.used_bytes == 3 * kPage);
  CHECK(stats.num_results == 1);
  CHECK(stats.num_leases == 0);
  CHECK(stats.leased_bytes == 0);
}

TEST_CASE_METHOD(StoreFixture, "A tensor outside its block is not published") {
  REQUIRE(reserve(1, 1) == ReserveVerdict::kReserved);
  const std::uint64_t offset = store.block_offset(1);
  struct Case {
    std::uint64_t offset;
    std::uint64_t size_bytes;
  };
  const auto outside =
      GENERATE_COPY(Case{offset - 4, 8}, Case{offset + kPage - 4, 8}, Case{offset, kPage + 1},
                    Case{offset + kPage + 1, 0}, Case{~std::uint64_t{0}, 8});
  PromptResult prompt;
  prompt.tensors = {{"t", DType::kU8, Shape{1}, outside.offset, outside.size_bytes}};
  CHECK_THROWS_AS(store.publish(1, {prompt}), std::logic_error);
  CHECK(is<Pending>(job(1)));
  store.publish(1, {});
}

TEST_CASE_METHOD(StoreFixture, "Calls out of order are errors of the caller") {
  CHECK_THROWS_AS(store.publish(1, {}), std::logic_error);
  CHECK_THROWS_AS(store.block(1), std::logic_error);
  CHECK_THROWS_AS(store.block_offset(1), std::logic_error);
  publish(1, 1);
  CHECK_THROWS_AS(store.publish(1, {}), std::logic_error);
  CHECK_THROWS_AS(reserve(1, 1), std::logic_error);
}

TEST_CASE_METHOD(StoreFixture, "Publishing and failing are announced, outside the lock") {
  int changes = 0;
  store.set_on_change([&] {
    ++changes;
    store.stats();
  });
  publish(1, 1);
  CHECK(changes == 1);
  store.fail(2, "", {"cancelled", ""});
  CHECK(changes == 2);
  store.set_on_change({});
  store.fail(3, "", {"cancelled", ""});
  CHECK(changes == 2);
}

TEST_CASE("Engine and readers work on one store at the same time") {
  Segment segment = Segment::create(kSegmentHeaderBytes + 8 * kPage, 0);
  ResultStore store(segment, {});
  constexpr JobId kJobs = 2000;
  std::atomic<JobId> read = 0;
  std::thread reader([&] {
    for (JobId id = 1; id <= kJobs;) {
      const AcquireOutcome outcome = store.acquire(id, kReader);
      if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
        const std::uint64_t offset = acquired->prompts->at(0).tensors.at(0).offset;
        if (segment.bytes()[offset] != static_cast<std::byte>(id)) return;
        store.release(acquired->lease, kReader);
        read = id++;
      }
      store.expire();
    }
  });
  for (JobId id = 1; id <= kJobs; ++id) {
    while (store.reserve(id, "", 3 * kPage) != ReserveVerdict::kReserved)
      std::this_thread::yield();
    store.block(id)[0] = static_cast<std::byte>(id);
    PromptResult prompt;
    prompt.tensors = {{"t", DType::kU8, Shape{1}, store.block_offset(id), 1}};
    store.publish(id, {prompt});
  }
  reader.join();
  CHECK(read == kJobs);
}

}  // namespace
}  // namespace gemmad
