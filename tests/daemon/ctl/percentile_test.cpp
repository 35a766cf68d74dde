#include "daemon/ctl/bench/percentile.h"

#include <numeric>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST_CASE("of one value every percentile is that value") {
  for (const int percent : {1, 50, 99, 100})
    CHECK(nearest_rank(std::vector<double>{7.5}, percent) == 7.5);
}

TEST_CASE("the median of an even number of values is the lower of the middle two") {
  CHECK(nearest_rank(one_to(4), 50) == 2);
  CHECK(nearest_rank(one_to(5), 50) == 3);
}

TEST_CASE("percentiles are always values that occurred") {
  CHECK(nearest_rank(std::vector<double>{1, 100}, 51) == 100);
  CHECK(nearest_rank(std::vector<double>{1, 100}, 50) == 1);
}

TEST_CASE("of 1 to 100 percentile p is p: no rank is moved by rounding") {
  const std::vector<double> values = one_to(100);
  for (int percent = 1; percent <= 100; ++percent)
    CHECK(nearest_rank(values, percent) == percent);
}

TEST_CASE("of 1 to 1000 percentile p is ten times p") {
  const std::vector<double> values = one_to(1000);
  for (int percent = 1; percent <= 100; ++percent)
    CHECK(nearest_rank(values, percent) == 10 * percent);
}

TEST_CASE("with fewer than a hundred values the 99th is the greatest") {
  CHECK(nearest_rank(one_to(10), 99) == 10);
  CHECK(nearest_rank(one_to(99), 99) == 99);
  CHECK(nearest_rank(one_to(101), 99) == 100);
}

TEST_CASE("no values and impossible percents are refused") {
  CHECK_THROWS_AS(nearest_rank({}, 50), std::invalid_argument);
  CHECK_THROWS_AS(nearest_rank(one_to(3), 0), std::invalid_argument);
  CHECK_THROWS_AS(nearest_rank(one_to(3), 101), std::invalid_argument);
}

}  // namespace
}  // namespace gemmad
