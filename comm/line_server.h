// A server of text lines on a Unix stream socket: one thread, one epoll, bounded memory. Knows nothing of
// their meaning.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "comm/unix_listener.h"
#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Not thread safe but for wake(): one thread makes it, runs it and calls it. The handler may call send,
/// close and close_after_flush from within its own functions.
class LineServer {
 public:
  /// Never used twice.
  using ClientId = std::uint64_t;

  struct Limits {
    std::size_t max_clients = 256;
    std::size_t max_line_bytes = 64 * 1024;           // newline not counted
    std::size_t max_unsent_bytes = 16 * 1024 * 1024;  // of replies a client; beyond, it is dropped
    std::chrono::milliseconds stall_timeout{
        30'000};  // half a line, or unread output, without a byte of progress
    std::string full_line =
        R"({"ok":false,"error":{"code":"too_many_clients","message":"too many clients"}})";
  };

  /// Called from run_once, on its thread. Must not throw for anything that a client can cause.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_connect(ClientId) {}
    /// A line, without its newline; not empty, at most max_line_bytes, any bytes. `line` is valid during the
    /// call.
    virtual void on_line(ClientId client, std::string_view line) = 0;
    /// Once for each line above the limit. The rest of that line is skipped, the connection goes on.
    virtual void on_line_too_long(ClientId client) = 0;
    /// Once for each client that connected, whoever ended it. Nothing can be sent to it any more.
    virtual void on_disconnect(ClientId client) = 0;
    /// Asked again and again about a client that has shut down its sending side only: true while replies are
    /// owed to it. At false it is closed after what is still unsent. Where never overridden, it stays until
    /// it hangs up.
    virtual bool keeps_half_closed(ClientId) { return true; }
  };

  /// `handler` must outlive the server. Clients of another user than ours and root are closed at once.
  LineServer(UnixListener listener, Limits limits, Handler& handler);
  LineServer(const LineServer&) = delete;
  LineServer& operator=(const LineServer&) = delete;
  /// Closes all clients, without on_disconnect.
  ~LineServer();

  /// Sends `line` and a newline, now or as the client reads. Never blocks. An unknown or closing client is
  /// ignored; one with more than max_unsent_bytes waiting is dropped. `fd_to_pass` goes along with the first
  /// byte; it must be this client's first send, and stay open until the client has gone.
  void send(ClientId client, std::string_view line, int fd_to_pass = -1);
  /// Reads no more from the client, sends what waits, closes. on_disconnect comes from run_once.
  void close_after_flush(ClientId client);
  /// Closes without sending what waits. on_disconnect comes from run_once.
  void close(ClientId client);

  /// Calls `on_readable` from run_once while `fd` is readable. `fd` must stay open as long as the server; the
  /// function must take what made it readable. Throws SystemError where epoll cannot watch it.
  void watch(int fd, std::function<void()> on_readable);
  /// Makes run_once return, the running one or the next. From any thread; async-signal-safe.
  void wake() noexcept;
  /// Waits up to `timeout` for something to happen, handles what is ready, and returns; sooner where a
  /// client's stall timeout ends. Throws SystemError when epoll fails.
  void run_once(std::chrono::milliseconds timeout);

  std::size_t num_clients() const;
  /// No new clients; the socket's name goes, the lock beside it is held on. Clients stay.
  void stop_listening();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Client;
  using Clients = std::unordered_map<ClientId, std::unique_ptr<Client>>;

  int wait_ms(std::chrono::milliseconds timeout) const;
  void handle_event(std::uint64_t tag, std::uint32_t events);
  void handle_client_event(ClientId id, Client& client, std::uint32_t events);
  void accept_clients();
  void admit(FileDescriptor socket);
  void set_accepting(bool accepting);
  void read_some(ClientId id, Client& client);
  void take_lines(ClientId id, Client& client, std::string_view bytes);
  void flush(ClientId id, Client& client);
  void update_interest(ClientId id, Client& client);
  void drop(ClientId id, Client& client, const char* reason);
  void settle();
  Client* find_open(ClientId id);

  UnixListener listener_;
  Limits limits_;
  Handler& handler_;
  FileDescriptor epoll_;
  FileDescriptor wake_event_;
  Clients clients_;
  ClientId next_client_ = 1;
  std::vector<ClientId> dead_;
  std::unordered_map<int, std::function<void()>> watches_;
  bool accepting_ = true;
  TimePoint resume_accepting_at_{};
  std::vector<char> read_buffer_;
};

}  // namespace gemmad
