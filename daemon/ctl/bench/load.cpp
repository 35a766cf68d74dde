#include "daemon/ctl/bench/load.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <thread>

namespace gemmad {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kProgressEveryMs = 200;

/// Ends the threads' work when it goes out of scope before they do.
class StopAtEnd {
 public:
  StopAtEnd(Load& load, RequestBudget& budget) : load_(load), budget_(budget) {}
  StopAtEnd(const StopAtEnd&) = delete;
  StopAtEnd& operator=(const StopAtEnd&) = delete;
  ~StopAtEnd() {
    if (!done_) stop();
  }
  void stop() noexcept {
    budget_.stop();
    for (const auto& connection : load_.connections)
      connection->hang_up();
  }
  void all_done() { done_ = true; }

 private:
  Load& load_;
  RequestBudget& budget_;
  bool done_ = false;
};

/// Readable once as many have left as it was made for.
class Departures {
 public:
  explicit Departures(std::size_t count)
      : left_(count), event_(check_system(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "open an event")) {}
  int fd() const { return event_.get(); }
  void leave() {
    constexpr std::uint64_t kOne = 1;
    // Cannot fail: the counter is far from full.
    if (--left_ == 0) [[maybe_unused]]
      const auto written = ::write(event_.get(), &kOne, sizeof kOne);
  }

 private:
  std::atomic<std::size_t> left_;
  FileDescriptor event_;
};

}  // namespace

LoadEnd run_load(Load& load, RequestBudget& budget, const std::function<void(BenchConnection&)>& work,
                 const std::function<void()>& progress) {
  LoadEnd end;
  Departures departures(load.connections.size());
  std::vector<std::jthread> threads;
  StopAtEnd stop_at_end(load, budget);
  const auto start = Clock::now();
  for (const auto& connection : load.connections) {
    threads.emplace_back([&work, &departures, one = connection.get()] {
      work(*one);
      departures.leave();
    });
  }
  std::array<pollfd, 2> waits{{{departures.fd(), POLLIN, 0}, {load.signals.fd(), POLLIN, 0}}};
  while (waits[0].revents == 0) {
    const int ready = ::poll(waits.data(), waits.size(), progress ? kProgressEveryMs : -1);
    if (ready < 0 && errno != EINTR) throw SystemError(errno, "wait for the connections");
    if (waits[1].revents != 0) {
      end.interrupted = true;
      waits[1].fd = -1;  // only the first
      waits[1].revents = 0;
      load.signals.take_and_release();
      stop_at_end.stop();
    }
    if (progress) progress();
  }
  end.wall = Clock::now() - start;
  stop_at_end.all_done();
  return end;
}

}  // namespace gemmad
