#include "daemon/ctl/helper_thread.h"

#include <atomic>
#include <memory>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

TEST_CASE("tasks are done one after the other") {
  HelperThread helper;
  int done = 0;
  for (int i = 0; i < 100; ++i)
    helper.begin([&done, i] { done = done == i ? i + 1 : -1; });
  helper.wait();
  CHECK(done == 100);
}

TEST_CASE("what a task holds is gone when it is done") {
  HelperThread helper;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  helper.begin([held = std::move(held)] {});
  helper.wait();
  CHECK(watched.expired());
}

TEST_CASE("the end waits for what began") {
  std::atomic<bool> done = false;
  {
    HelperThread helper;
    helper.begin([&done] { done = true; });
  }
  CHECK(done);
}

}  // namespace
}  // namespace gemmad
