#include "comm/line_server.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/comm/socket_support.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

/// Echoes lines, and does what some lines say. Runs on the server's thread.
class Echo final : public LineServer::Handler {
 public:
  LineServer* server = nullptr;
  std::atomic<int> num_connected = 0;
  std::atomic<int> num_disconnected = 0;
  std::atomic<std::size_t> num_lines = 0;
  std::atomic<bool> keeps_half_closed_clients = true;
  std::atomic<bool> throws = false;

  void on_connect(LineServer::ClientId) override { ++num_connected; }
  void on_line(LineServer::ClientId client, std::string_view line) override {
    ++num_lines;
    if (line == "close") return server->close(client);
    if (line == "goodbye") {
      server->send(client, "last words");
      server->close_after_flush(client);
      return server->send(client, "too late");
    }
    if (line == "flood") {
      for (int i = 0; i < 1000; ++i)
        server->send(client, std::string(1000, 'f'));
      return;
    }
    server->send(client, "echo " + std::string(line));
  }
  void on_line_too_long(LineServer::ClientId client) override { server->send(client, "too long"); }
  void on_disconnect(LineServer::ClientId client) override {
    server->send(client, "ignored");
    ++num_disconnected;
  }
  bool keeps_half_closed(LineServer::ClientId) override { return keeps_half_closed_clients; }
};

/// A server on a thread of its own, stopped and joined at the end.
class RunningServer {
 public:
  explicit RunningServer(LineServer::Limits limits = {}) : server_(UnixListener::bind(path()), limits, echo) {
    echo.server = &server_;
    thread_ = std::thread([this] {
      while (!stopping_) {
        server_.run_once(std::chrono::seconds(60));
        ++num_turns;
      }
    });
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer() { stop(); }
  void stop() {
    stopping_ = true;
    server_.wake();
    if (thread_.joinable()) thread_.join();
  }

  std::string path() const { return folder_ / "s.sock"; }
  bool answers() {
    RawClient client(path());
    client.send_line("hello");
    return client.line() == "echo hello";
  }

  Echo echo;
  std::atomic<int> num_turns = 0;

 private:
  ScratchFolder folder_;
  LineServer server_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

TEST_CASE("Lines are answered in order, whether they come at once or in pieces") {
  RunningServer server;
  RawClient client(server.path());
  client.send("one\ntwo\n\n\nthr");
  CHECK(client.line() == "echo one");
  CHECK(client.line() == "echo two");
  client.send("ee\nfo");
  CHECK(client.line() == "echo three");
  client.send("ur");
  client.send("\n");
  CHECK(client.line() == "echo four");
}

TEST_CASE("A line above the limit is refused, and the connection goes on") {
  LineServer::Limits limits;
  limits.max_line_bytes = 100;
  RunningServer server(limits);
  RawClient client(server.path());
  client.send_line(std::string(100, 'x'));
  CHECK(client.line() == "echo " + std::string(100, 'x'));
  client.send_line(std::string(101, 'x'));
  CHECK(client.line() == "too long");
  client.send_line("after");
  CHECK(client.line() == "echo after");
}

TEST_CASE("A line of a gigabyte takes no memory") {
  RunningServer server;
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  RawClient client(server.path());
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 1024; ++i)
    client.send(part);
  client.send("\nafter\n");
  CHECK(client.line() == "too long");
  CHECK(client.line() == "echo after");
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 64 * 1024);  // KiB
}

TEST_CASE("A client that leaves in the middle of a line is forgotten") {
  RunningServer server;
  {
    RawClient client(server.path());
    client.send("half a li");
  }
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.echo.num_lines == 0);
  CHECK(server.answers());
}

TEST_CASE("What a client sent before it left is handled") {
  RunningServer server;
  {
    RawClient client(server.path());
    for (int i = 0; i < 100; ++i)
      client.send_line(std::string(2000, 'x'));
  }
  CHECK(eventually([&] { return server.echo.num_lines == 100; }));
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
}

TEST_CASE("A client that has shut down sending still gets its replies") {
  const bool keeps = GENERATE(true, false);
  CAPTURE(keeps);
  RunningServer server;
  server.echo.keeps_half_closed_clients = keeps;
  RawClient client(server.path());
  client.send("flood\nlast\n");
  client.shut_down_sending();
  for (int i = 0; i < 1000; ++i)
    REQUIRE(client.line().has_value());
  CHECK(client.line() == "echo last");
  if (keeps) {
    CHECK_FALSE(client.ends(milliseconds(50)));
    client.hang_up();
  } else {
    CHECK(client.ends());
  }
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
}

TEST_CASE("Half-closed clients do not keep the server busy") {
  RunningServer server;
  RawClient client(server.path());
  client.send_line("x");
  client.shut_down_sending();
  CHECK(client.line() == "echo x");
  const int turns_before = server.num_turns;
  CHECK_FALSE(client.ends(milliseconds(200)));
  CHECK(server.num_turns - turns_before < 10);
}

TEST_CASE("A closing client gets what was sent before, and nothing after") {
  RunningServer server;
  RawClient client(server.path());
  client.send("goodbye\nnot read any more\n");
  CHECK(client.line() == "last words");
  CHECK_FALSE(client.line().has_value());
  CHECK(client.ends());
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.echo.num_lines == 1);
}

TEST_CASE("A client closed by its own line is told off once") {
  RunningServer server;
  RawClient client(server.path());
  client.send("close\nclose\nclose\n");
  CHECK(client.ends());
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.echo.num_lines == 1);
}

TEST_CASE("A client that never reads is dropped at the limit of unsent bytes, others are served") {
  LineServer::Limits limits;
  limits.max_unsent_bytes = 100'000;
  RunningServer server(limits);
  RawClient deaf(server.path());
  deaf.send_line("flood");
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.answers());
}

TEST_CASE("A client that never reads is dropped when it stalls") {
  LineServer::Limits limits;
  limits.stall_timeout = milliseconds(100);
  RunningServer server(limits);
  RawClient deaf(server.path());
  deaf.send_line("flood");
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.answers());
}

TEST_CASE("Half a line without the rest is dropped in time, an idle client is not") {
  LineServer::Limits limits;
  limits.stall_timeout = milliseconds(100);
  RunningServer server(limits);
  RawClient idle(server.path());
  RawClient half(server.path());
  half.send("{\"id\":1,");
  CHECK(half.ends());
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  idle.send_line("still here");
  CHECK(idle.line() == "echo still here");
}

TEST_CASE("A line that comes slowly but steadily is not dropped") {
  LineServer::Limits limits;
  limits.stall_timeout = milliseconds(400);
  RunningServer server(limits);
  RawClient client(server.path());
  for (int i = 0; i < 30; ++i) {
    client.send("x");
    CHECK_FALSE(client.line(milliseconds(20)).has_value());
  }
  client.send("\n");
  CHECK(client.line() == "echo " + std::string(30, 'x'));
}

TEST_CASE("A full server says so, and takes the next when one has left") {
  LineServer::Limits limits;
  limits.max_clients = 2;
  limits.full_line = "full";
  RunningServer server(limits);
  std::optional<RawClient> first(std::in_place, server.path());
  RawClient second(server.path());
  CHECK(eventually([&] { return server.echo.num_connected == 2; }));
  RawClient third(server.path());
  CHECK(third.line() == "full");
  CHECK(third.ends());
  first.reset();
  CHECK(eventually([&] { return server.echo.num_disconnected == 1; }));
  CHECK(server.answers());
}

TEST_CASE("Two hundred clients at once are all served") {
  RunningServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 200; ++i)
    clients.push_back(std::make_unique<RawClient>(server.path()));
  for (int i = 0; i < 200; ++i)
    clients[static_cast<std::size_t>(i)]->send_line(std::to_string(i));
  for (int i = 0; i < 200; ++i) {
    REQUIRE(clients[static_cast<std::size_t>(i)]->line() == "echo " + std::to_string(i));
  }
  clients.clear();
  CHECK(eventually([&] { return server.echo.num_disconnected == 200; }));
}

TEST_CASE("A client that sends without pause does not keep others waiting") {
  RunningServer server;
  RawClient busy(server.path());
  std::atomic<bool> done = false;
  std::thread sender([&] {
    const std::string part(1 << 20, 'x');  // one line without end
    while (!done && busy.try_send(part)) {
    }
  });
  for (int i = 0; i < 20; ++i)
    CHECK(server.answers());
  done = true;
  sender.join();
}

/// Takes every descriptor number below the limit that it sets, until it ends.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    check_system(::getrlimit(RLIMIT_NOFILE, &old_), "getrlimit");
    rlimit low = old_;
    low.rlim_cur = 64;
    check_system(::setrlimit(RLIMIT_NOFILE, &low), "setrlimit");
    for (int fd = ::dup(0); fd >= 0; fd = ::dup(0))
      taken_.emplace_back(fd);
  }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;
  ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &old_); }

 private:
  rlimit old_{};
  std::vector<FileDescriptor> taken_;
};

TEST_CASE("Without descriptors left the server waits instead of spinning") {
  RunningServer server;
  RawClient early(server.path());
  early.send_line("early");
  CHECK(early.line() == "echo early");
  {
    const FileDescriptor socket = new_client_socket();
    std::optional<NoDescriptorsLeft> shortage(std::in_place);
    REQUIRE(connect_to(socket, server.path()));
    const int turns_before = server.num_turns;
    pollfd entry{socket.get(), POLLIN, 0};
    REQUIRE(::send(socket.get(), "late\n", 5, MSG_NOSIGNAL) == 5);
    CHECK(::poll(&entry, 1, 300) == 0);
    CHECK(server.num_turns - turns_before < 20);
    early.send_line("meanwhile");
    CHECK(early.line() == "echo meanwhile");
    shortage.reset();
    CHECK(::poll(&entry, 1, 20'000) == 1);
  }
}

TEST_CASE("A stopped listener keeps its clients and its lock") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  Echo echo;
  LineServer server(UnixListener::bind(path), {}, echo);
  echo.server = &server;
  RawClient client(path);
  server.run_once(milliseconds(1000));
  REQUIRE(server.num_clients() == 1);
  server.stop_listening();
  server.stop_listening();
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(message_of([&] { UnixListener::bind(path); }).find("already serves") != std::string::npos);
  client.send_line("x");
  server.run_once(milliseconds(1000));
  CHECK(client.line(milliseconds(1000)) == "echo x");
}

TEST_CASE("Waking ends a wait, from another thread and before the wait") {
  const ScratchFolder folder;
  Echo echo;
  LineServer server(UnixListener::bind(folder / "s.sock"), {}, echo);
  const auto begin = std::chrono::steady_clock::now();
  server.wake();
  server.run_once(std::chrono::seconds(60));
  std::thread other([&] { server.wake(); });
  server.run_once(std::chrono::seconds(60));
  other.join();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("A watched descriptor is served in the same loop") {
  const ScratchFolder folder;
  Echo echo;
  LineServer server(UnixListener::bind(folder / "s.sock"), {}, echo);
  const FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int num_calls = 0;
  server.watch(event.get(), [&] {
    std::uint64_t count = 0;
    CHECK(::read(event.get(), &count, sizeof count) == sizeof count);
    ++num_calls;
  });
  const std::uint64_t one = 1;
  REQUIRE(::write(event.get(), &one, sizeof one) == sizeof one);
  server.run_once(std::chrono::seconds(60));
  server.run_once(milliseconds(0));
  CHECK(num_calls == 1);
  CHECK_THROWS_AS(server.watch(event.get(), [] {}), SystemError);
}

TEST_CASE("Without work a turn lasts as long as it was told") {
  const ScratchFolder folder;
  Echo echo;
  LineServer server(UnixListener::bind(folder / "s.sock"), {}, echo);
  const auto begin = std::chrono::steady_clock::now();
  server.run_once(milliseconds(30));
  CHECK(std::chrono::steady_clock::now() - begin >= milliseconds(29));
}

TEST_CASE("Sockets of clients stay out of other programs") {
  RunningServer server;
  RawClient client(server.path());
  client.send_line("x");
  REQUIRE(client.line() == "echo x");
  int num_sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode) || fd <= 2) continue;
    ++num_sockets;
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(num_sockets >= 3);
}

}  // namespace
}  // namespace gemmad
