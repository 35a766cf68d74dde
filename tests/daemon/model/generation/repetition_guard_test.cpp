#include "daemon/model/generation/repetition_guard.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

using namespace gemmad;
using Ids = std::vector<std::int32_t>;

namespace {

struct Finding {
  std::int64_t pushed = 0;  // ids until the guard noticed, the last included
  std::int64_t cut = 0;

  bool operator==(const Finding&) const = default;
};

std::optional<Finding> watch(const Ids& ids) {
  RepetitionGuard guard;
  std::int64_t pushed = 0;
  for (const std::int32_t id : ids) {
    ++pushed;
    if (const auto cut = guard.push(id)) return Finding{pushed, *cut};
  }
  return std::nullopt;
}

/// `length` ids that go round and round in `round`.
Ids rounds_of(const Ids& round, std::size_t length) {
  Ids ids;
  while (ids.size() < length)
    ids.push_back(round[ids.size() % round.size()]);
  return ids;
}

Ids counting(std::int32_t from, std::size_t count) {
  Ids ids;
  while (ids.size() < count)
    ids.push_back(from++);
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("One id is noticed after 24 times and cut behind the first") {
  CHECK_FALSE(watch(Ids(23, 5)));
  CHECK(watch(Ids(24, 5)) == Finding{24, 1});
  CHECK(watch(counting(100, 10) + Ids(24, 5)) == Finding{34, 11});
}

TEST_CASE("Every period up to 64 is noticed after three rounds of 32 ids or more, and cut behind the first") {
  for (std::int64_t period = 2; period <= 64; ++period) {
    CAPTURE(period);
    const Ids round = counting(1000, static_cast<std::size_t>(period));
    const std::int64_t enough = std::max<std::int64_t>(3 * period, 32);
    CHECK(watch(counting(1, 77) + rounds_of(round, 300)) == Finding{77 + enough, 77 + period});
    CHECK_FALSE(watch(counting(1, 77) + rounds_of(round, static_cast<std::size_t>(enough - 1)) +
                      counting(5000, 200)));
  }
}

TEST_CASE("A period above 64 is not noticed") {
  CHECK_FALSE(watch(rounds_of(counting(1, 65), 650)));
}

TEST_CASE("It stays noticed as long as it goes on, and is forgotten when it ends") {
  RepetitionGuard guard;
  for (int i = 0; i < 23; ++i)
    CHECK_FALSE(guard.push(5));
  for (int i = 0; i < 100; ++i)
    CHECK(guard.push(5) == 1);
  CHECK_FALSE(guard.push(6));
}

TEST_CASE("A list whose entries differ is no circle") {
  // "- The N. shot shows ITEM, slowly.\n" a hundred times: ten ids, of which two change.
  Ids list;
  for (std::int32_t entry = 0; entry < 100; ++entry)
    list = list + Ids{1, 2, 1000 + entry, 3, 4, 5, 2000 + entry * 7 % 100, 6, 7, 8};
  CHECK_FALSE(watch(list));
}

TEST_CASE("A chant of four words, five times, is no circle") {
  CHECK_FALSE(watch(counting(100, 30) + rounds_of({1, 2, 3, 4, 5}, 25) + counting(200, 30)));
}

TEST_CASE("The guard agrees with a search through all that was generated") {
  std::mt19937 random(20);
  for (int trial = 0; trial < 200; ++trial) {
    // Few different ids in stretches that often repeat, so that many periods overlap.
    Ids ids;
    while (ids.size() < 300) {
      const Ids round = [&] {
        Ids out(1 + random() % 12);
        for (std::int32_t& id : out)
          id = static_cast<std::int32_t>(random() % 3);
        return out;
      }();
      ids = ids + rounds_of(round, 1 + random() % 40);
    }
    RepetitionGuard guard;
    for (std::int64_t n = 1; n <= static_cast<std::int64_t>(ids.size()); ++n) {
      std::optional<std::int64_t> expected;
      for (std::int64_t period = 1; period <= 64 && period < n && !expected; ++period) {
        std::int64_t first = n - period;  // of the longest end of the ids that repeats with this period
        while (first > 0 &&
               ids[static_cast<std::size_t>(first - 1)] == ids[static_cast<std::size_t>(first - 1 + period)])
          --first;
        const std::int64_t enough = period == 1 ? 24 : std::max<std::int64_t>(3 * period, 32);
        if (n - first >= enough) expected = first + period;
      }
      REQUIRE(guard.push(ids[static_cast<std::size_t>(n - 1)]) == expected);
    }
  }
}
