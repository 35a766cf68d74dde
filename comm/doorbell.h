// A wake-up call between processes of one host and one user: a datagram socket without a name in the file
// system.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Where a doorbell is reached. Fixed size, so that ranks can exchange it as bytes.
struct DoorbellAddress {
  std::array<char, 16> bytes{};  // abstract socket name, its leading zero byte included
  std::uint32_t size_bytes = 0;  // 0: no doorbell
};

/// Rings of other users are dropped. Nothing is left behind, however the process ends.
class Doorbell {
 public:
  /// Throws SystemError when the kernel gives no socket.
  Doorbell();

  const DoorbellAddress& address() const { return address_; }
  /// Readable while rings wait.
  int fd() const { return socket_.get(); }

  /// Takes the rings that wait; true if one came from a process of this user. Never waits.
  bool answer();

  /// Wakes the process at `address`; never waits. False when nobody is there.
  bool ring(const DoorbellAddress& address);

 private:
  FileDescriptor socket_;
  DoorbellAddress address_;
};

}  // namespace gemmad
