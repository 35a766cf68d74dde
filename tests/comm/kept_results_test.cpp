// Results that are kept beyond their time, and results whose tensors lie in the blocks of others.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "comm/result_store.h"
#include "comm/segment_layout.h"
#include "tests/comm/store_of_pages.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

PromptResult prompt_at(std::uint64_t offset, std::uint64_t size_bytes) {
  PromptResult prompt;
  prompt.ok = true;
  prompt.tensors = {{"t", DType::kU8, Shape{static_cast<std::int64_t>(size_bytes)}, offset, size_bytes}};
  return prompt;
}

struct StoreFixture : StoreOfPages {
  StoreFixture() : StoreOfPages({.max_failures = 4096, .max_results = 8}) {}

  ReserveVerdict reserve(JobId job, std::uint64_t num_pages, const std::string& name = "") {
    return store.reserve(job, name, num_pages * kPage);
  }
  /// A result of one prompt with one tensor, which fills the block.
  void publish(JobId job, std::uint64_t num_pages, const std::string& name = "") {
    REQUIRE(reserve(job, num_pages, name) == ReserveVerdict::kReserved);
    store.publish(job, {prompt_at(store.block_offset(job), num_pages * kPage)});
  }
  void publish_kept(JobId job, std::uint64_t num_pages, const std::string& name = "") {
    publish(job, num_pages, name);
    store.keep(job);
  }
  /// A result without a block of its own: the prompts of kept job `lender`.
  void publish_borrowing(JobId job, JobId lender) {
    REQUIRE(reserve(job, 0) == ReserveVerdict::kReserved);
    const std::vector<JobId> lenders{lender};
    store.publish(job, *store.prompts_of(lender), lenders);
  }
  LeaseId lease(const ResultKey& key) {
    const AcquireOutcome outcome = store.acquire(key, kReader);
    REQUIRE(std::holds_alternative<Acquired>(outcome));
    return std::get<Acquired>(outcome).lease;
  }
  void read_once(const ResultKey& key) { REQUIRE(store.release(lease(key), kReader)); }
  void pass(milliseconds time) {
    now += time;
    store.expire();
  }
  std::uint64_t used_pages() const { return store.stats().used_bytes / kPage; }

  template <typename Outcome>
  bool is(const ResultKey& key) {
    const AcquireOutcome outcome = store.acquire(key, kReader);
    if (const auto* acquired = std::get_if<Acquired>(&outcome)) store.release(acquired->lease, kReader);
    return std::holds_alternative<Outcome>(outcome);
  }
};

ResultKey job(JobId id) {
  return id;
}

TEST_CASE_METHOD(StoreFixture, "A kept block outlives its result, until it is dropped") {
  publish_kept(1, 3);
  read_once(job(1));
  pass(kTtl);
  CHECK(is<Gone>(job(1)));
  CHECK(used_pages() == 3);
  CHECK(store.stats().kept_bytes == 3 * kPage);
  CHECK(store.stats().num_results == 0);
  store.drop(1);
  CHECK(used_pages() == 0);
  CHECK(store.stats().kept_bytes == 0);
  CHECK(reserve(2, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Readers see no difference between a kept result and another") {
  publish_kept(1, 2, "kept");
  publish(2, 2, "plain");
  for (const char* name : {"kept", "plain"}) {
    CAPTURE(name);
    CHECK(is<Acquired>(std::string(name)));
  }
  pass(kTtl);
  for (const JobId id : {1, 2})
    CHECK(is<Gone>(job(id)));
  for (const char* name : {"kept", "plain"})
    CHECK(is<Pending>(std::string(name)));
}

TEST_CASE_METHOD(StoreFixture, "A name is free again while the result that had it is kept") {
  publish_kept(1, 1, "x");
  read_once(std::string("x"));
  publish(2, 1, "x");
  const AcquireOutcome outcome = store.acquire(std::string("x"), kReader);
  CHECK(std::get<Acquired>(outcome).job == 2);
  store.drop(1);
  CHECK(is<Acquired>(job(1)));
}

TEST_CASE_METHOD(StoreFixture, "A kept result is not evicted for space, and others are not instead in vain") {
  publish_kept(1, 6);
  publish_borrowing(2, 1);
  publish(3, 2);
  for (const JobId id : {1, 2, 3})
    read_once(job(id));
  CHECK(reserve(4, 2) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(3)));
  CHECK(reserve(5, 1) == ReserveVerdict::kNoSpace);
  CHECK(is<Acquired>(job(1)));
  CHECK(is<Acquired>(job(2)));
}

TEST_CASE_METHOD(StoreFixture, "A dropped result lives on: its time counts from publication") {
  publish_kept(1, 8);
  pass(kTtl / 2);
  store.drop(1);
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  CHECK(is<Acquired>(job(1)));
  pass(kTtl / 2);
  CHECK(is<Gone>(job(1)));
  CHECK(used_pages() == 0);
}

TEST_CASE_METHOD(StoreFixture, "A dropped result that was read leaves for a reservation") {
  publish_kept(1, 8);
  read_once(job(1));
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  store.drop(1);
  CHECK(reserve(2, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A lease holds the block of a result that was dropped and is over its time") {
  publish_kept(1, 8);
  const LeaseId lease_id = lease(job(1));
  store.drop(1);
  pass(kTtl);
  CHECK(reserve(2, 1) == ReserveVerdict::kNoSpace);
  store.release(lease_id, kReader);
  CHECK(reserve(2, 1) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Kept results leave the list of results when it is full") {
  for (JobId id = 1; id <= 8; ++id)
    publish_kept(id, 1);
  read_once(job(1));
  CHECK(reserve(9, 0) == ReserveVerdict::kReserved);
  CHECK(is<Gone>(job(1)));
  CHECK(store.prompts_of(1)->size() == 1);
  CHECK(used_pages() == 8);
}

TEST_CASE_METHOD(StoreFixture, "A reservation can be kept before it is published") {
  REQUIRE(reserve(1, 2) == ReserveVerdict::kReserved);
  store.keep(1);
  CHECK_THROWS_AS(store.prompts_of(1), std::logic_error);
  store.publish(1, {prompt_at(store.block_offset(1), kPage)});
  pass(kTtl);
  CHECK(store.prompts_of(1)->at(0).tensors.at(0).size_bytes == kPage);
  CHECK(used_pages() == 2);
}

TEST_CASE_METHOD(StoreFixture, "A kept reservation that comes to nothing is no longer kept") {
  for (const JobId id : {1, 2}) {
    REQUIRE(reserve(id, 4) == ReserveVerdict::kReserved);
    store.keep(id);
  }
  store.fail(1, "", {"internal", ""});
  store.release_reservation(2);
  CHECK(used_pages() == 0);
  CHECK(store.stats().kept_bytes == 0);
  CHECK_THROWS_AS(store.drop(1), std::logic_error);
  CHECK(reserve(2, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "A failure told for a published job leaves it kept") {
  publish_kept(1, 1);
  store.fail(1, "", {"cancelled", ""});
  store.drop(1);
}

TEST_CASE_METHOD(StoreFixture, "Keeping and dropping out of order are errors of the caller") {
  CHECK_THROWS_AS(store.keep(1), std::logic_error);
  CHECK_THROWS_AS(store.drop(1), std::logic_error);
  CHECK_THROWS_AS(store.prompts_of(1), std::logic_error);
  publish(1, 1);
  CHECK_THROWS_AS(store.drop(1), std::logic_error);
  CHECK_THROWS_AS(store.prompts_of(1), std::logic_error);
  store.keep(1);
  CHECK_THROWS_AS(store.keep(1), std::logic_error);
  pass(kTtl);
  CHECK_THROWS_AS(store.keep(1), std::logic_error);
  CHECK_THROWS_AS(reserve(1, 1), std::logic_error);
  store.drop(1);
  CHECK_THROWS_AS(store.drop(1), std::logic_error);
  CHECK_THROWS_AS(store.keep(1), std::logic_error);
}

TEST_CASE_METHOD(StoreFixture, "A borrowing result points at the tensors of the earlier one") {
  publish_kept(1, 2);
  const std::uint64_t offset = store.prompts_of(1)->at(0).tensors.at(0).offset;
  pass(kTtl);
  REQUIRE(reserve(2, 1) == ReserveVerdict::kReserved);
  const std::vector<JobId> lenders{1, 1};
  store.publish(2, {store.prompts_of(1)->at(0), prompt_at(store.block_offset(2), kPage)}, lenders);
  const AcquireOutcome outcome = store.acquire(job(2), kReader);
  const auto& prompts = *std::get<Acquired>(outcome).prompts;
  CHECK(prompts.at(0).tensors.at(0).offset == offset);
  CHECK(prompts.at(1).tensors.at(0).offset != offset);
  CHECK(used_pages() == 3);
}

TEST_CASE_METHOD(StoreFixture, "A borrowed block outlives the drop and the end of its own result") {
  publish_kept(1, 4);
  pass(kTtl / 2);
  publish_borrowing(2, 1);
  store.drop(1);
  pass(kTtl / 2);
  CHECK(is<Gone>(job(1)));
  CHECK(is<Acquired>(job(2)));
  CHECK(used_pages() == 4);
  pass(kTtl / 2);
  CHECK(is<Gone>(job(2)));
  CHECK(used_pages() == 0);
}

TEST_CASE_METHOD(StoreFixture,
                 "A leased borrower holds the borrowed block, and a reservation gets it after") {
  publish_kept(1, 8);
  publish_borrowing(2, 1);
  read_once(job(1));
  const LeaseId lease_id = lease(job(2));
  store.drop(1);
  pass(kTtl);
  CHECK(reserve(3, 1) == ReserveVerdict::kNoSpace);
  CHECK(store.release(lease_id, kReader));
  CHECK(reserve(3, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Results that hold a block together are evicted together for it") {
  publish_kept(1, 8);
  publish_borrowing(2, 1);
  store.drop(1);
  read_once(job(1));
  CHECK(reserve(3, 1) == ReserveVerdict::kNoSpace);
  read_once(job(2));
  CHECK(reserve(3, 8) == ReserveVerdict::kReserved);
}

TEST_CASE_METHOD(StoreFixture, "Keeping a borrower keeps its own block alone") {
  publish_kept(1, 2);
  REQUIRE(reserve(2, 3) == ReserveVerdict::kReserved);
  const std::vector<JobId> lenders{1};
  store.publish(2, *store.prompts_of(1), lenders);
  store.keep(2);
  store.drop(1);
  CHECK(store.stats().kept_bytes == 3 * kPage);
  pass(kTtl);
  CHECK(used_pages() == 3);
}

TEST_CASE_METHOD(StoreFixture, "What a borrower borrowed cannot be borrowed from it") {
  publish_kept(1, 1);
  publish_borrowing(2, 1);
  store.keep(2);
  REQUIRE(reserve(3, 0) == ReserveVerdict::kReserved);
  const std::vector<JobId> lenders{2};
  CHECK_THROWS_AS(store.publish(3, *store.prompts_of(2), lenders), std::logic_error);
}

TEST_CASE_METHOD(StoreFixture, "A published result lends while it is there, kept or not") {
  publish(1, 1);
  REQUIRE(reserve(2, 0) == ReserveVerdict::kReserved);
  const std::vector<JobId> lenders{1};
  store.publish(2, {}, lenders);
  pass(kTtl);
  REQUIRE(reserve(3, 0) == ReserveVerdict::kReserved);
  CHECK_THROWS_AS(store.publish(3, {}, lenders), std::logic_error);
  CHECK(is<Pending>(job(3)));
}

TEST_CASE_METHOD(StoreFixture, "Nothing is borrowed from a job that has not published") {
  REQUIRE(reserve(1, 1) == ReserveVerdict::kReserved);
  store.keep(1);
  REQUIRE(reserve(2, 0) == ReserveVerdict::kReserved);
  const JobId lender = GENERATE(JobId{1}, JobId{2}, JobId{99});
  const std::vector<JobId> lenders{lender};
  CHECK_THROWS_AS(store.publish(2, {}, lenders), std::logic_error);
}

TEST_CASE_METHOD(StoreFixture, "A refused borrowing changes nothing") {
  publish_kept(1, 1);
  REQUIRE(reserve(2, 1) == ReserveVerdict::kReserved);
  const std::uint64_t lent = store.prompts_of(1)->at(0).tensors.at(0).offset;
  const std::vector<JobId> lenders{1};
  CHECK_THROWS_AS(store.publish(2, {prompt_at(lent, kPage)}), std::logic_error);
  CHECK_THROWS_AS(store.publish(2, {prompt_at(lent + 1, kPage)}, lenders), std::logic_error);
  store.drop(1);
  pass(kTtl);
  CHECK(used_pages() == 1);
  CHECK(is<Pending>(job(2)));
  store.publish(2, {});
}

TEST_CASE_METHOD(StoreFixture, "A block that several results hold counts once") {
  publish_kept(1, 2);
  publish_borrowing(2, 1);
  publish_borrowing(3, 1);
  for (const JobId id : {1, 2, 3})
    lease(job(id));
  CHECK(store.stats().used_bytes == 2 * kPage);
  CHECK(store.stats().leased_bytes == 2 * kPage);
  CHECK(store.stats().kept_bytes == 2 * kPage);
}

TEST_CASE("Blocks are kept, lent and dropped while readers come and go") {
  Segment segment = Segment::create(kSegmentHeaderBytes + 8 * kPage, 0);
  ResultStore store(segment, {});
  constexpr JobId kJobs = 2000;
  std::atomic<JobId> read = 0;
  std::thread reader([&] {
    for (JobId id = 1; id <= kJobs;) {
      const AcquireOutcome outcome = store.acquire(id, kReader);
      if (const auto* acquired = std::get_if<Acquired>(&outcome)) {
        // Three jobs in a row have the bytes of the first.
        const std::uint64_t offset = acquired->prompts->at(0).tensors.at(0).offset;
        if (segment.bytes()[offset] != static_cast<std::byte>((id - 1) / 3)) return;
        store.release(acquired->lease, kReader);
        read = id++;
      }
      store.expire();
    }
  });
  JobId kept = 0;
  for (JobId id = 1; id <= kJobs; ++id) {
    const bool computes = (id - 1) % 3 == 0;
    if (computes && kept != 0) store.drop(kept);
    while (store.reserve(id, "", computes ? 3 * kPage : 0) != ReserveVerdict::kReserved)
      std::this_thread::yield();
    if (computes) {
      kept = id;
      store.keep(id);
      std::ranges::fill(store.block(id), static_cast<std::byte>((id - 1) / 3));
      store.publish(id, {prompt_at(store.block_offset(id), kPage)});
    } else {
      const std::vector<JobId> lenders{kept};
      store.publish(id, *store.prompts_of(kept), lenders);
    }
  }
  reader.join();
  CHECK(read == kJobs);
}

}  // namespace
}  // namespace gemmad
