#include "comm/unix_listener.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <optional>
#include <stdexcept>

#include "tests/comm/socket_support.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

void bind_and_leave(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const FileDescriptor socket = new_client_socket();
  check_system(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
}

bool exists(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

TEST_CASE("Socket, lock and directory are closed to others, whatever the umask") {
  const ScratchFolder folder;
  const mode_t old_umask = ::umask(0);
  const auto listener = UnixListener::bind(folder / "new/deeper/s.sock");
  ::umask(old_umask);
  CHECK(mode_of(folder / "new") == 0700);
  CHECK(mode_of(folder / "new/deeper") == 0700);
  CHECK(mode_of(folder / "new/deeper/s.sock") == 0600);
  CHECK(mode_of(folder / "new/deeper/s.sock.lock") == 0600);
  CHECK((::fcntl(listener.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(somebody_listens(folder / "new/deeper/s.sock"));
}

TEST_CASE("The socket goes with its listener, and the path can be served again") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  { const auto listener = UnixListener::bind(path); }
  CHECK_FALSE(exists(path));
  const auto again = UnixListener::bind(path);
  CHECK(somebody_listens(path));
}

TEST_CASE("A second daemon on the same path is refused, and the first is unharmed") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  const auto first = UnixListener::bind(path);
  const std::string message = message_of([&] { UnixListener::bind(path); });
  CHECK(message == "another daemon (pid " + std::to_string(::getpid()) + ") already serves " + path +
                       "; stop it or choose another path");
  CHECK(somebody_listens(path));
  CHECK(mode_of(path) == 0600);
}

TEST_CASE("A socket left by a dead process is replaced") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  bind_and_leave(path);
  REQUIRE(exists(path));
  const auto listener = UnixListener::bind(path);
  CHECK(somebody_listens(path));
}

TEST_CASE("After a SIGKILL of its daemon the path can be served again") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      const auto listener = UnixListener::bind(path);
      while (true)
        ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  REQUIRE(eventually([&] { return somebody_listens(path); }));
  CHECK(message_of([&] { UnixListener::bind(path); }).find("pid " + std::to_string(child)) !=
        std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE(exists(path));
  const auto listener = UnixListener::bind(path);
  CHECK(somebody_listens(path));
}

TEST_CASE("A listener of another program is left alone") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  const auto other = UnixListener::bind(path);
  std::filesystem::remove(folder / "s.sock.lock");  // as if it used no lock of ours
  CHECK(message_of([&] { UnixListener::bind(path); }).find("another program listens there") !=
        std::string::npos);
  CHECK(somebody_listens(path));
}

TEST_CASE("A file that is no socket is not removed") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  std::ofstream(path) << "precious";
  CHECK(message_of([&] { UnixListener::bind(path); }).find("no socket lies there") != std::string::npos);
  CHECK(std::filesystem::file_size(path) == 8);
}

TEST_CASE("A directory where others may write is refused") {
  const ScratchFolder folder;
  const auto mode = GENERATE(0770, 0702, 01777);
  REQUIRE(::chmod(folder.path().c_str(), static_cast<mode_t>(mode)) == 0);
  CHECK(message_of([&] { UnixListener::bind(folder / "s.sock"); }).find("other users may write") !=
        std::string::npos);
  CHECK_FALSE(exists(folder / "s.sock"));
}

TEST_CASE("A directory of somebody else is refused") {
  if (::geteuid() != 0) return;  // only root can give a directory away
  const ScratchFolder folder;
  REQUIRE(::chown(folder.path().c_str(), 12345, static_cast<gid_t>(-1)) == 0);
  CHECK(message_of([&] { UnixListener::bind(folder / "s.sock"); }).find("belongs to user 12345") !=
        std::string::npos);
}

TEST_CASE("A path that no socket can have is refused by a sentence") {
  const ScratchFolder folder;
  CHECK(message_of([&] {
          UnixListener::bind(folder / std::string(200, 'x'));
        }).find("the system takes 107") != std::string::npos);
  CHECK(message_of([] { UnixListener::bind(""); }).find("is empty") != std::string::npos);
  std::ofstream(folder / "file") << "x";
  CHECK_THROWS_AS(UnixListener::bind(folder / "file/s.sock"), std::runtime_error);
}

TEST_CASE("A socket that has taken the name is not removed with the listener") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  {
    const auto listener = UnixListener::bind(path);
    std::filesystem::rename(path, folder / "moved.sock");
    bind_and_leave(path);
  }
  CHECK(exists(path));
}

TEST_CASE("A closed listener keeps its lock") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  auto listener = UnixListener::bind(path);
  listener.close();
  CHECK_FALSE(exists(path));
  CHECK(listener.fd() == -1);
  CHECK(message_of([&] { UnixListener::bind(path); }).find("already serves") != std::string::npos);
}

TEST_CASE("A moved listener serves on") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  std::optional<UnixListener> first = UnixListener::bind(path);
  const UnixListener second = std::move(*first);
  first.reset();
  CHECK(second.path() == path);
  CHECK(somebody_listens(path));
}

}  // namespace
}  // namespace gemmad
