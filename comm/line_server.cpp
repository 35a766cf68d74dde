#include "comm/line_server.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "comm/line_splitter.h"
#include "comm/send_queue.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;

// One client's share of a turn, so that a busy one does not keep the others waiting.
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 64;
// Without descriptors left, accepting is tried again after this time, or when a client leaves.
constexpr std::chrono::milliseconds kAcceptPause{100};

// What epoll hands back. Clients' numbers never get near the two high bits.
constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 62;
constexpr std::uint64_t kWakeTag = kListenerTag + 1;
constexpr std::uint64_t kWatchTag = std::uint64_t{1} << 63;

int control_epoll(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, operation, fd, &event);
}

bool is_trusted(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

bool is_out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

struct LineServer::Client {
  Client(FileDescriptor its_socket, std::size_t max_line_bytes)
      : socket(std::move(its_socket)), input(max_line_bytes) {}

  bool reads() const { return !read_closed && !closing; }
  /// When its patience ends, if it is in the middle of something.
  std::optional<TimePoint> stalls_at(std::chrono::milliseconds stall_timeout) const {
    if (output.size_bytes() > 0) return last_sent + stall_timeout;
    if (reads() && input.has_partial_line()) return last_received + stall_timeout;
    return std::nullopt;
  }

  FileDescriptor socket;
  LineSplitter input;
  SendQueue output;
  TimePoint last_received = Clock::now();
  TimePoint last_sent = Clock::now();
  std::uint32_t interest = EPOLLIN;
  bool read_closed = false;  // it sends no more, but may still read
  bool closing = false;      // we read no more, and close when all is sent
  bool deaf = false;         // what it sent is still handled, but it takes no replies any more
  bool dead = false;         // in dead_
};

LineServer::LineServer(UnixListener listener, Limits limits, Handler& handler)
    : listener_(std::move(listener)),
      limits_(std::move(limits)),
      handler_(handler),
      epoll_(check_system(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_event_(check_system(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      read_buffer_(kReadBytes) {
  check_system(control_epoll(epoll_.get(), EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, kListenerTag),
               "watch socket " + listener_.path());
  check_system(control_epoll(epoll_.get(), EPOLL_CTL_ADD, wake_event_.get(), EPOLLIN, kWakeTag),
               "watch eventfd");
}

LineServer::~LineServer() = default;

void LineServer::send(ClientId client, std::string_view line, int fd_to_pass) {
  Client* const open = find_open(client);
  if (open == nullptr || open->closing || open->deaf) return;
  const bool was_idle = open->output.size_bytes() == 0;
  if (was_idle) open->last_sent = Clock::now();
  if (fd_to_pass >= 0) open->output.pass_fd(fd_to_pass);
  open->output.push_line(line);
  if (was_idle) flush(client, *open);
  if (open->output.size_bytes() > limits_.max_unsent_bytes) {
    drop(client, *open, "it does not read its replies, and too many bytes wait");
  }
}

void LineServer::close_after_flush(ClientId client) {
  Client* const open = find_open(client);
  if (open == nullptr) return;
  open->closing = true;
  if (open->output.size_bytes() == 0) return drop(client, *open, nullptr);
  update_interest(client, *open);
}

void LineServer::close(ClientId client) {
  if (Client* const open = find_open(client)) drop(client, *open, nullptr);
}

void LineServer::watch(int fd, std::function<void()> on_readable) {
  check_system(
      control_epoll(epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN, kWatchTag | static_cast<std::uint64_t>(fd)),
      "watch descriptor " + std::to_string(fd));
  watches_[fd] = std::move(on_readable);
}

void LineServer::wake() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full: then the wake-up is pending already.
  [[maybe_unused]] const ssize_t written = ::write(wake_event_.get(), &one, sizeof one);
}

std::size_t LineServer::num_clients() const {
  return clients_.size();
}

void LineServer::stop_listening() {
  if (listener_.fd() < 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
  listener_.close();
}

void LineServer::run_once(std::chrono::milliseconds timeout) {
  settle();  // what was done to clients since the last turn
  std::array<epoll_event, kEventsPerTurn> events{};
  const int num_events = ::epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, wait_ms(timeout));
  if (num_events < 0 && errno != EINTR) throw SystemError(errno, "epoll_wait for " + listener_.path());
  for (int i = 0; i < num_events; ++i)
    handle_event(events[i].data.u64, events[i].events);
  if (!accepting_ && Clock::now() >= resume_accepting_at_) set_accepting(true);
  settle();
}

int LineServer::wait_ms(std::chrono::milliseconds timeout) const {
  if (!dead_.empty()) return 0;
  const TimePoint now = Clock::now();
  TimePoint until = now + std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(0),
                                                                std::chrono::hours(24));
  if (!accepting_) until = std::min(until, resume_accepting_at_);
  for (const auto& [id, client] : clients_) {
    if (const auto stalls_at = client->stalls_at(limits_.stall_timeout)) until = std::min(until, *stalls_at);
  }
  return static_cast<int>(
      std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now).count()));
}

void LineServer::handle_event(std::uint64_t tag, std::uint32_t events) {
  if (tag == kListenerTag) return accept_clients();
  if (tag == kWakeTag) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake_event_.get(), &count, sizeof count);
    return;
  }
  if ((tag & kWatchTag) != 0) return watches_.at(static_cast<int>(tag & ~kWatchTag))();
  if (Client* const client = find_open(tag)) handle_client_event(tag, *client, events);
}

void LineServer::handle_client_event(ClientId id, Client& client, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(id, client);
  if (client.dead) return;
  // What it sent comes before that it left.
  if ((events & EPOLLIN) != 0 && client.reads()) return read_some(id, client);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) drop(id, client, nullptr);
}

void LineServer::accept_clients() {
  for (int i = 0; i < kAcceptsPerTurn && listener_.fd() >= 0; ++i) {
    FileDescriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (is_out_of_resources(errno)) {
        spdlog::warn("socket {}: no descriptors or memory left for new clients", listener_.path());
        set_accepting(false);
      }
      return;
    }
    admit(std::move(socket));
  }
}

void LineServer::admit(FileDescriptor socket) {
  if (!is_trusted(socket.get())) return;
  if (clients_.size() >= limits_.max_clients) {
    SendQueue goodbye;
    goodbye.push_line(limits_.full_line);
    goodbye.flush(socket.get());
    return;
  }
  const ClientId id = next_client_;
  if (control_epoll(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN, id) != 0) return;
  ++next_client_;
  clients_.emplace(id, std::make_unique<Client>(std::move(socket), limits_.max_line_bytes));
  handler_.on_connect(id);
}

void LineServer::set_accepting(bool accepting) {
  accepting_ = accepting;
  resume_accepting_at_ = Clock::now() + kAcceptPause;
  if (listener_.fd() < 0) return;
  check_system(
      control_epoll(epoll_.get(), EPOLL_CTL_MOD, listener_.fd(), accepting ? EPOLLIN : 0u, kListenerTag),
      "watch socket " + listener_.path());
}

void LineServer::read_some(ClientId id, Client& client) {
  const ssize_t size = ::recv(client.socket.get(), read_buffer_.data(), read_buffer_.size(), 0);
  if (size < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) drop(id, client, nullptr);
    return;
  }
  if (size == 0) {
    client.read_closed = true;
    if (client.deaf) return drop(id, client, nullptr);
    return update_interest(id, client);
  }
  client.last_received = Clock::now();
  take_lines(id, client, {read_buffer_.data(), static_cast<std::size_t>(size)});
}

void LineServer::take_lines(ClientId id, Client& client, std::string_view bytes) {
  std::string_view line;
  while (!client.dead && !client.closing) {
    switch (client.input.next(bytes, line)) {
      case LineSplitter::Event::kNeedMore:
        return;
      case LineSplitter::Event::kLine:
        handler_.on_line(id, line);
        break;
      case LineSplitter::Event::kTooLong:
        handler_.on_line_too_long(id);
        break;
    }
  }
}

void LineServer::flush(ClientId id, Client& client) {
  switch (client.output.flush(client.socket.get())) {
    case SendQueue::Progress::kBroken:
      if (!client.reads()) return drop(id, client, nullptr);
      client.deaf = true;
      client.output = SendQueue();
      break;
    case SendQueue::Progress::kSome:
      client.last_sent = Clock::now();
      break;
    case SendQueue::Progress::kNone:
      break;
  }
  if (client.closing && client.output.size_bytes() == 0) return drop(id, client, nullptr);
  update_interest(id, client);
}

void LineServer::update_interest(ClientId id, Client& client) {
  std::uint32_t interest = client.reads() ? std::uint32_t{EPOLLIN} : 0u;
  if (client.output.size_bytes() > 0) interest |= EPOLLOUT;
  if (interest == client.interest) return;
  client.interest = interest;
  if (control_epoll(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), interest, id) != 0)
    drop(id, client, nullptr);
}

void LineServer::drop(ClientId id, Client& client, const char* reason) {
  if (client.dead) return;
  client.dead = true;
  dead_.push_back(id);
  if (reason != nullptr) spdlog::info("socket {}: dropped client {}: {}", listener_.path(), id, reason);
}

void LineServer::settle() {
  const TimePoint now = Clock::now();
  for (const auto& [id, client] : clients_) {
    if (client->dead) continue;
    const auto stalls_at = client->stalls_at(limits_.stall_timeout);
    if (stalls_at && *stalls_at <= now) {
      drop(id, *client,
           client->output.size_bytes() > 0 ? "it does not read its replies"
                                           : "it stopped in the middle of a line");
    } else if (client->read_closed && !client->closing && !handler_.keeps_half_closed(id)) {
      close_after_flush(id);
    }
  }
  while (!dead_.empty()) {
    const ClientId id = dead_.back();
    dead_.pop_back();
    clients_.erase(id);
    if (!accepting_) set_accepting(true);
    handler_.on_disconnect(id);
  }
}

LineServer::Client* LineServer::find_open(ClientId id) {
  const auto client = clients_.find(id);
  return client == clients_.end() || client->second->dead ? nullptr : client->second.get();
}

}  // namespace gemmad
