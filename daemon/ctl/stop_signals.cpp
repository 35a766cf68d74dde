#include "daemon/ctl/stop_signals.h"

#include <sys/signalfd.h>

namespace gemmad {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals_, &before_)) {
    throw SystemError(error, "hold signals back");
  }
  fd_.reset(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw SystemError(error, "open a descriptor for signals");
  }
}

StopSignals::~StopSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopSignals::take_and_release() {
  signalfd_siginfo taken;
  // Of several that came, one is enough: the others say the same.
  while (::read(fd_.get(), &taken, sizeof taken) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace gemmad
