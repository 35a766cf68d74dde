// Ctrl-C as a descriptor to wait for.
#pragma once

#include <csignal>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Holds SIGINT and SIGTERM back while it lives: in the thread that makes it and in those started from then
/// on.
class StopSignals {
 public:
  /// Throws SystemError.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Readable once such a signal has come.
  int fd() const { return fd_.get(); }
  /// Takes the signal that came, and lets the next one end the process: what follows may hang.
  void take_and_release();

 private:
  sigset_t signals_{};
  sigset_t before_{};
  FileDescriptor fd_;
};

}  // namespace gemmad
