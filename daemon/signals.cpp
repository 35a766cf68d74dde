#include "daemon/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <stdexcept>

namespace gemmad {

namespace {

// A handler has no other way to its pipe. -1 while nobody listens.
std::atomic<int> handler_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void write_signal_number(int signal) {
  const int saved_errno = errno;
  const auto number = static_cast<std::uint8_t>(signal);
  // A full pipe holds more signals than anybody will read.
  [[maybe_unused]] const auto written = ::write(handler_pipe.load(), &number, sizeof number);
  errno = saved_errno;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  check_system(::sigaction(signal, &action, nullptr), "set the handler of signal " + std::to_string(signal));
}

}  // namespace

CaughtSignals::CaughtSignals() {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), "open a pipe for signals");
  read_end_.reset(ends[0]);
  write_end_.reset(ends[1]);
  int nobody = -1;
  if (!handler_pipe.compare_exchange_strong(nobody, ends[1]))
    throw std::logic_error("signals are caught already");
  set_handler(SIGPIPE, SIG_IGN);
  set_handler(SIGTERM, write_signal_number);
  set_handler(SIGINT, write_signal_number);
  set_handler(SIGHUP, write_signal_number);
}

CaughtSignals::~CaughtSignals() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP})
    std::signal(signal, SIG_DFL);
  handler_pipe = -1;
}

int CaughtSignals::take() const {
  std::uint8_t number = 0;
  if (::read(read_end_.get(), &number, sizeof number) != 1) return 0;
  if (number != SIGHUP) ++num_stops_;
  return number;
}

SecondSignalWatch::SecondSignalWatch(const CaughtSignals& signals)
    : signals_(signals),
      end_event_(check_system(::eventfd(0, EFD_CLOEXEC), "open an event to end the watch over signals")),
      thread_([this] { watch(); }) {}

SecondSignalWatch::~SecondSignalWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(end_event_.get(), &one, sizeof one);
  thread_.join();
}

void SecondSignalWatch::watch() const {
  std::array<pollfd, 2> sources{{{signals_.fd(), POLLIN, 0}, {end_event_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return;
    if ((sources[1].revents & POLLIN) != 0) return;
    const int signal = signals_.take();
    if (signal != 0 && signal != SIGHUP && signals_.num_stops() > 1) ::_exit(128 + signal);
  }
}

}  // namespace gemmad
