#include "daemon/stop_signals.h"

#include <sys/signalfd.h>

#include <csignal>

namespace gemmad {

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const int blocked = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (blocked != 0) throw SystemError(blocked, "block SIGTERM and SIGINT");
  fd_ = FileDescriptor(check_system(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), "open a signal descriptor"));
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) throw SystemError(errno, "ignore SIGPIPE");
}

int StopSignals::take() const {
  signalfd_siginfo info{};
  const auto size = ::read(fd_.get(), &info, sizeof info);
  return size == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace gemmad
