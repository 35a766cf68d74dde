// The rank's reader socket: hands the segment to co-located readers and leases results to them, on its own
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/line_server.h"
#include "comm/result_store.h"
#include "comm/segment.h"
#include "comm/unix_listener.h"

namespace gemmad {

/// Runs the thread "reader" from construction to stop(). Speaks comm/reader_protocol.h. A reader's leases and
/// waiting acquires belong to its connection and end with it. Sets the store's on_change, and expires its
/// results.
class ReaderEndpoint {
 public:
  struct Watch {
    int fd = -1;                        // open as long as the endpoint
    std::function<void()> on_readable;  // on the reader thread; must take what made it readable
  };
  struct Options {
    std::size_t max_waiting = 64;  // acquires of one connection that wait; beyond: code too_many_waiting
    std::chrono::milliseconds expire_every{500};
    std::vector<Watch> watches;
    /// Called once, on the reader thread, when it ends by an exception; the text is its what(). The socket is
    /// closed by then. Must not call stop().
    std::function<void(std::string)> on_fatal;
  };

  /// `segment` and `store` must outlive the endpoint. Throws SystemError.
  ReaderEndpoint(UnixListener listener, LineServer::Limits limits, Segment& segment, ResultStore& store,
                 Options options);
  ReaderEndpoint(UnixListener listener, LineServer::Limits limits, Segment& segment, ResultStore& store);
  ReaderEndpoint(const ReaderEndpoint&) = delete;
  ReaderEndpoint& operator=(const ReaderEndpoint&) = delete;
  /// stop().
  ~ReaderEndpoint();

  /// Ends the thread, waits for it, closes all connections and the socket. Not from the reader thread.
  /// Idempotent.
  void stop();
  const std::string& path() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace gemmad
