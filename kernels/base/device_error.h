// The error of a device that can no longer be relied on.
#pragma once

#include <stdexcept>

namespace gemmad {

/// A call to a device failed, or work that was put there before. what() names the call and the device's reason.
/// Nothing that the device holds counts any more: fatal for the process.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gemmad
