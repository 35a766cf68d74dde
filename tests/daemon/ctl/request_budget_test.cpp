#include "daemon/ctl/bench/request_budget.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

TEST_CASE("a budget of requests counts up from its first number and ends") {
  RequestBudget budget(10, 2, std::nullopt);
  CHECK(budget.take() == 10);
  CHECK(budget.take() == 11);
  CHECK_FALSE(budget.take());
  CHECK_FALSE(budget.take());
}

TEST_CASE("a budget of time ends with it") {
  RequestBudget over(0, std::nullopt, std::chrono::seconds(0));
  CHECK_FALSE(over.take());
  RequestBudget ample(0, std::nullopt, std::chrono::hours(1));
  CHECK(ample.take() == 0);
}

TEST_CASE("of requests and time, what ends first ends the budget") {
  RequestBudget few(0, 1, std::chrono::hours(1));
  CHECK(few.take() == 0);
  CHECK_FALSE(few.take());
  CHECK_FALSE(RequestBudget(0, 5, std::chrono::seconds(0)).take());
}

TEST_CASE("a stopped budget gives nothing more") {
  RequestBudget budget(0, std::nullopt, std::nullopt);
  CHECK(budget.take() == 0);
  CHECK_FALSE(budget.stopped());
  budget.stop();
  CHECK(budget.stopped());
  CHECK_FALSE(budget.take());
}

}  // namespace
}  // namespace gemmad
