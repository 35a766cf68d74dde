// SIGTERM and SIGINT as a descriptor to read, so that no work is done in a signal handler.
#pragma once

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Blocks the two signals in the calling thread and in all threads that it starts from then on, so make it first in
/// main. What arrives waits here. SIGPIPE is ignored from then on too.
class StopSignals {
 public:
  /// Throws SystemError.
  StopSignals();

  /// Readable while a signal waits.
  int fd() const { return fd_.get(); }
  /// Takes one waiting signal: its number, or 0 when none waits. Never waits. From any thread.
  int take() const;

 private:
  FileDescriptor fd_;
};

}  // namespace gemmad
