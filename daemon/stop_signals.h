// SIGTERM and SIGINT as a descriptor to read, so that no work is done in a signal handler.
#pragma once

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Catches the two signals while it lives; what arrives waits here, in order. SIGPIPE is ignored. One at a time in a
/// process. A handler and a pipe rather than a signalfd: libraries start threads before main, whose signal masks nobody
/// sets, and a signal that such a thread gets would end the process.
class StopSignals {
 public:
  /// Throws SystemError, and std::logic_error when one lives already.
  StopSignals();
  /// Gives the signals their default effect again.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Readable while a signal waits.
  int fd() const { return read_end_.get(); }
  /// Takes one waiting signal: its number, or 0 when none waits. Never waits. From any thread.
  int take() const;

 private:
  FileDescriptor read_end_;
  FileDescriptor write_end_;
};

}  // namespace gemmad
