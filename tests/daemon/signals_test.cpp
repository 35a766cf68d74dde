#include "daemon/signals.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

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
  const CaughtSignals signals;
  CHECK_FALSE(becomes_readable(signals.fd(), 0));
  CHECK(signals.take() == 0);
}

TEST_CASE("signals wait in order until they are taken") {
  const CaughtSignals signals;
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
  const CaughtSignals signals;
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
  const CaughtSignals signals;
  CHECK_THROWS_AS(CaughtSignals(), std::logic_error);
  std::raise(SIGTERM);
  CHECK(signals.take() == SIGTERM);
}

TEST_CASE("a hang-up is caught like the others and is no stop") {
  const CaughtSignals signals;
  std::raise(SIGHUP);
  std::raise(SIGTERM);
  CHECK(signals.take() == SIGHUP);
  CHECK(signals.num_stops() == 0);
  CHECK(signals.take() == SIGTERM);
  CHECK(signals.num_stops() == 1);
  CHECK(signals.take() == 0);
  CHECK(signals.num_stops() == 1);
}

/// How a forked child ends that catches signals, watches for a second stop and runs `body`. It leaves with 0
/// if nothing ends it.
template <typename Body>
int end_of_watched_child(int stops_before, const Body& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    const CaughtSignals signals;
    for (int i = 0; i < stops_before; ++i) {
      std::raise(SIGTERM);
      signals.take();
    }
    {
      const SecondSignalWatch watch(signals);
      body(signals);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Waits until the watch has taken all signals.
void wait_until_taken(const CaughtSignals& signals) {
  while (becomes_readable(signals.fd(), 0))
    ::usleep(200);
}

[[noreturn]] void wait_for_the_end() {
  for (;;)
    ::pause();
}

TEST_CASE("the second stop ends the process at once with its number") {
  CHECK(end_of_watched_child(1, [](const CaughtSignals&) {
          std::raise(SIGINT);
          wait_for_the_end();
        }) == 128 + SIGINT);
}

TEST_CASE("the watch ends the process at the second stop, not at the first") {
  CHECK(end_of_watched_child(0, [](const CaughtSignals& signals) {
          std::raise(SIGTERM);
          wait_until_taken(signals);
        }) == 0);
  CHECK(end_of_watched_child(0, [](const CaughtSignals&) {
          std::raise(SIGTERM);
          std::raise(SIGTERM);
          wait_for_the_end();
        }) == 128 + SIGTERM);
}

TEST_CASE("a hang-up during a stop ends nothing") {
  CHECK(end_of_watched_child(1, [](const CaughtSignals& signals) {
          std::raise(SIGHUP);
          wait_until_taken(signals);
        }) == 0);
}

}  // namespace
}  // namespace gemmad
