// The order in which a device does its work.
#pragma once

#include <cstddef>

namespace gemmad {

/// A non-owning handle of a device's queue of work. Only the Ops that made it knows what it points to; the
/// CPU's does nothing, since every CPU operation is complete when it returns. Cannot be made from 0 or
/// nullptr: take it from Ops::stream().
class Stream {
 public:
  explicit Stream(void* handle) : handle_(handle) {}
  Stream(std::nullptr_t) = delete;
  Stream(int) = delete;

  void* handle() const { return handle_; }

 private:
  void* handle_;
};

}  // namespace gemmad
