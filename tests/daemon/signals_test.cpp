#include "daemon/stop_signals.h"

#include <poll.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

bool becomes_readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1;
}

TEST_CASE("no signal, nothing to take") {
  const StopSignals signals;
  CHECK_FALSE(becomes_readable(signals.fd(), 0));
  CHECK(signals.take() == 0);
}

TEST_CASE("signals wait in order until they are taken") {
  const StopSignals signals;
  std::raise(SIGTERM);
  std::raise(SIGINT);
  CHECK(becomes_readable(signals.fd(), 1000));
  CHECK(signals.take() == SIGTERM);
  CHECK(signals.take() == SIGINT);
  CHECK(signals.take() == 0);
}

TEST_CASE("a signal that another thread gets, one older than the catcher, is caught too") {
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  std::thread older([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return go; });
    // Directed at this very thread, whose mask nobody set.
    ::pthread_kill(::pthread_self(), SIGTERM);
  });
  const StopSignals signals;
  {
    const std::lock_guard lock(mutex);
    go = true;
  }
  changed.notify_one();
  older.join();
  CHECK(becomes_readable(signals.fd(), 1000));
  CHECK(signals.take() == SIGTERM);
}

TEST_CASE("a second catcher is refused and the first goes on") {
  const StopSignals signals;
  CHECK_THROWS_AS(StopSignals(), std::logic_error);
  std::raise(SIGTERM);
  CHECK(signals.take() == SIGTERM);
}

}  // namespace
}  // namespace gemmad
