// SIGTERM and SIGINT as a descriptor to read, so that no work is done in a signal handler.
#pragma once

#include <atomic>
#include <thread>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Catches the two signals while it lives; what arrives waits here, in order. SIGPIPE is ignored. One at a
/// time in a process. A handler and a pipe rather than a signalfd: libraries start threads before main, whose
/// signal masks nobody sets, and a signal that such a thread gets would end the process.
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
  /// How many signals take() has given so far.
  int num_taken() const { return num_taken_; }

 private:
  FileDescriptor read_end_;
  FileDescriptor write_end_;
  mutable std::atomic<int> num_taken_{0};
};

/// Takes the signals on a thread of its own while it lives, for the time when a stop is under way and nobody
/// else looks: the second one that was ever taken ends the process at once with 128 + its number.
class SecondSignalWatch {
 public:
  /// `signals` must outlive it. Throws SystemError.
  explicit SecondSignalWatch(const StopSignals& signals);
  ~SecondSignalWatch();
  SecondSignalWatch(const SecondSignalWatch&) = delete;
  SecondSignalWatch& operator=(const SecondSignalWatch&) = delete;

 private:
  void watch() const;

  const StopSignals& signals_;
  FileDescriptor end_event_;
  std::thread thread_;
};

}  // namespace gemmad
