#include "comm/job_id_set.h"

#include <limits>
#include <random>
#include <set>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

TEST_CASE("A set of job ids holds what was inserted, in whatever order") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  JobIdSet ids(1000);
  std::set<JobId> model;
  for (int i = 0; i < 400; ++i) {
    const JobId id = 1 + random() % 300;
    ids.insert(id);
    model.insert(id);
    for (JobId probe = 0; probe <= 302; ++probe)
      REQUIRE(ids.contains(probe) == (model.count(probe) > 0));
  }
}

TEST_CASE("Ids that rise without gaps take one range") {
  JobIdSet ids(4);
  for (JobId id = 1; id <= 100'000; ++id)
    ids.insert(id);
  CHECK(ids.num_ranges() == 1);
  CHECK(ids.contains(100'000));
  CHECK_FALSE(ids.contains(100'001));
}

TEST_CASE("Beyond the limit of ranges the oldest gap is closed") {
  JobIdSet ids(3);
  for (const JobId id : {10, 20, 30, 40})
    ids.insert(static_cast<JobId>(id));
  CHECK(ids.num_ranges() == 3);
  CHECK(ids.contains(15));
  CHECK_FALSE(ids.contains(25));
  CHECK_FALSE(ids.contains(5));
}

TEST_CASE("The least and the largest id are ids like others") {
  JobIdSet ids(8);
  ids.insert(0);
  ids.insert(std::numeric_limits<JobId>::max());
  CHECK(ids.contains(0));
  CHECK(ids.contains(std::numeric_limits<JobId>::max()));
  CHECK_FALSE(ids.contains(1));
  CHECK(ids.num_ranges() == 2);
}

}  // namespace
}  // namespace gemmad
