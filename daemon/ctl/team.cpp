#include "daemon/ctl/team.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <thread>

namespace gemmad {

namespace {

/// Ends the threads' work when it goes out of scope before they do.
class StopAtEnd {
 public:
  explicit StopAtEnd(const Team& team) : team_(team) {}
  StopAtEnd(const StopAtEnd&) = delete;
  StopAtEnd& operator=(const StopAtEnd&) = delete;
  ~StopAtEnd() { stop(); }
  void stop() {
    if (!ended_) team_.stop();
    ended_ = true;
  }
  void all_done() { ended_ = true; }

 private:
  const Team& team_;
  bool ended_ = false;
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

bool run_team(const Team& team, StopSignals& signals) {
  bool interrupted = false;
  Departures departures(team.work.size());
  std::vector<std::jthread> threads;
  StopAtEnd stop_at_end(team);
  for (const auto& work : team.work) {
    threads.emplace_back([&work, &departures] {
      work();
      departures.leave();
    });
  }
  const int wait_ms = team.progress ? static_cast<int>(team.progress_every.count()) : -1;
  std::array<pollfd, 2> waits{{{departures.fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
  while (waits[0].revents == 0) {
    const int ready = ::poll(waits.data(), waits.size(), wait_ms);
    if (ready < 0 && errno != EINTR) throw SystemError(errno, "wait for threads");
    if (waits[1].revents != 0) {
      interrupted = true;
      waits[1].fd = -1;  // only the first
      waits[1].revents = 0;
      signals.take_and_release();
      stop_at_end.stop();
    }
    if (team.progress) team.progress();
  }
  stop_at_end.all_done();
  return interrupted;
}

}  // namespace gemmad
