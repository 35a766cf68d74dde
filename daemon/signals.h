// SIGTERM, SIGINT and SIGHUP as a descriptor to read, so that no work is done in a signal handler.
#pragma once

#include <atomic>
#include <thread>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Catches these signals while it lives; what arrives waits here, in order. SIGPIPE is ignored. One at a
/// time in a process. A handler and a pipe rather than a signalfd: libraries start threads before main, whose
/// signal masks nobody sets, and a signal that such a thread gets would end the process.
class CaughtSignals {
 public:
  /// Throws SystemError, and std::logic_error when one lives already.
  CaughtSignals();
  /// Gives the signals their default effect again.
  ~CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  /// Readable while a signal waits.
  int fd() const { return read_end_.get(); }
  /// Takes one waiting signal: its number, or 0 when none waits. Never waits. From any thread.
  int take() const;
  /// How many SIGTERM and SIGINT take() has given so far.
  int num_stops() const { return num_stops_; }

 private:
  FileDescriptor read_end_;
  FileDescriptor write_end_;
  mutable std::atomic<int> num_stops_{0};
};

/// Takes the signals on a thread of its own while it lives, for the time when a stop is under way and nobody
/// else looks: the second stop that was ever asked for ends the process at once with 128 + its signal.
class SecondSignalWatch {
 public:
  /// `signals` must outlive it. Throws SystemError.
  explicit SecondSignalWatch(const CaughtSignals& signals);
  ~SecondSignalWatch();
  SecondSignalWatch(const SecondSignalWatch&) = delete;
  SecondSignalWatch& operator=(const SecondSignalWatch&) = delete;

 private:
  void watch() const;

  const CaughtSignals& signals_;
  FileDescriptor end_event_;
  std::thread thread_;
};

}  // namespace gemmad
