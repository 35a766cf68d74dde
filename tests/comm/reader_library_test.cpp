#include <fcntl.h>
#include <sys/mman.h>

#include <functional>
#include <thread>

#include "comm/reader/gemmad_reader.h"
#include "comm/reader/reader_replies.h"
#include "comm/segment.h"
#include "comm/segment_layout.h"
#include "comm/send_queue.h"
#include "comm/unix_listener.h"
#include "tests/comm/sealed_segment.h"
#include "tests/comm/socket_support.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename Action>
std::string code_of(Action action) {
  try {
    action();
  } catch (const ReaderError& error) {
    return error.code();
  }
  return "no error";
}

std::string acquired_with(const std::string& tensor) {
  return R"({"id":1,"ok":true,"lease":7,"job":12,"prompts":[{"status":"ok","tokens":1,"padded_length":1024,)"
         R"("truncated":false,"tensors":[)" +
         tensor + "]}]}";
}

AcquiredReply parse(const std::string& line, std::uint64_t segment_bytes = 8192) {
  static const std::byte kData[1] = {};
  return parse_acquired(parse_reply(line), kData, segment_bytes);
}

TEST_CASE("The reader takes tensors up to the last byte of the segment") {
  const auto reply =
      parse(acquired_with(R"({"name":"t","dtype":"F32","shape":[1024],"offset":4096,"bytes":4096})"));
  CHECK(reply.lease == 7);
  CHECK(reply.prompts.at(0).tensors.at(0).offset == 4096);
  CHECK(parse(acquired_with(R"({"name":"t","dtype":"U8","shape":[0,5],"offset":8192,"bytes":0})")).job == 12);
}

TEST_CASE("The reader refuses tensors that cannot be") {
  const std::string tensor =
      GENERATE(as<std::string>{}, R"({"name":"t","dtype":"F32","shape":[1024],"offset":4100,"bytes":4096})",
               R"({"name":"t","dtype":"F32","shape":[1],"offset":8192,"bytes":4})",
               R"({"name":"t","dtype":"F32","shape":[2],"offset":18446744073709551612,"bytes":8})",
               R"({"name":"t","dtype":"F32","shape":[4294967296,4294967296],"offset":0,"bytes":0})",
               R"({"name":"t","dtype":"F32","shape":[4611686018427387904],"offset":0,"bytes":0})",
               R"({"name":"t","dtype":"F32","shape":[-1],"offset":0,"bytes":4})",
               R"({"name":"t","dtype":"F32","shape":[1.0],"offset":0,"bytes":4})",
               R"({"name":"t","dtype":"F32","shape":4,"offset":0,"bytes":4})",
               R"({"name":"t","dtype":"F32","shape":[3],"offset":4096,"bytes":8})",
               R"({"name":"t","dtype":"F32","shape":[1],"offset":4098,"bytes":4})",
               R"({"name":"t","dtype":"F64","shape":[1],"offset":4096,"bytes":8})",
               R"({"name":"t","dtype":"F32","shape":[1],"offset":-4,"bytes":4})",
               R"({"name":"t","dtype":"F32","shape":[1],"offset":"0","bytes":4})", R"({"name":"t"})", "5");
  CAPTURE(tensor);
  CHECK(code_of([&] { parse(acquired_with(tensor)); }) == "protocol");
}

TEST_CASE("The reader refuses replies that make no sense, and passes errors on") {
  CHECK(code_of([] { parse("x"); }) == "protocol");
  CHECK(code_of([] { parse("[]"); }) == "protocol");
  CHECK(code_of([] { parse(R"({"id":1,"ok":true})"); }) == "protocol");
  CHECK(code_of([] { parse(R"({"id":1,"ok":false})"); }) == "protocol");
  CHECK(code_of([] { parse(R"({"id":1,"ok":true,"lease":1,"job":1,"prompts":[{"status":"error"}]})"); }) ==
        "protocol");
  CHECK(code_of([] { parse(R"({"id":1,"ok":false,"error":{"code":"gone","message":"m"}})"); }) == "gone");
}

TEST_CASE("A name that is not UTF-8 is refused before it is sent") {
  CHECK(code_of([] { format_acquire(1, "\xff", 0); }) == "bad_request");
}

/// Greets one reader with what the test says, then does what it says.
class FakeDaemon {
 public:
  FakeDaemon(const std::string& greeting, int fd_to_pass, std::function<void(int socket)> go_on = {})
      : listener_(UnixListener::bind(path())), thread_([=, this] {
          pollfd entry{listener_.fd(), POLLIN, 0};
          if (::poll(&entry, 1, 20'000) != 1) return;
          const FileDescriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
          SendQueue queue;
          if (fd_to_pass >= 0) queue.pass_fd(fd_to_pass);
          queue.push_line(greeting);
          queue.flush(socket.get());
          if (go_on) go_on(socket.get());
        }) {}
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;
  ~FakeDaemon() { thread_.join(); }
  std::string path() const { return folder_ / "s.sock"; }

 private:
  ScratchFolder folder_;
  UnixListener listener_;
  std::thread thread_;
};

constexpr std::uint64_t kBytes = 4 * 4096;

std::string greeting(int version = 1, int rank = 0, std::uint64_t segment_bytes = kBytes) {
  return R"({"gemmad_reader":)" + std::to_string(version) + R"(,"rank":)" + std::to_string(rank) +
         R"(,"segment_bytes":)" + std::to_string(segment_bytes) + "}";
}

std::string connect_code(const FakeDaemon& daemon) {
  return code_of([&] { Reader::connect(daemon.path(), seconds(10)); });
}

TEST_CASE("The reader connects to a segment that is what it should be") {
  const Segment segment = sealed_segment(kBytes, 0);
  CHECK(connect_code(FakeDaemon(greeting(), segment.fd())) == "no error");
}

TEST_CASE("The reader refuses a greeting that is none of ours") {
  const Segment segment = sealed_segment(kBytes, 0);
  const std::string line = GENERATE(as<std::string>{}, "hello", "{}", "[]", R"({"gemmad_reader":"1"})",
                                    greeting(2), greeting(1, 1), greeting(1, 0, kBytes + 4096),
                                    greeting(1, 0, 0), R"({"gemmad_reader":1,"rank":0})");
  CAPTURE(line);
  CHECK(connect_code(FakeDaemon(line, segment.fd())) == "protocol");
}

TEST_CASE("The reader refuses a greeting without a segment") {
  CHECK(connect_code(FakeDaemon(greeting(), -1)) == "protocol");
}

TEST_CASE("The reader refuses memory that could shrink under it, or has another header") {
  FileDescriptor fd(::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), kBytes) == 0);
  SegmentHeader header{kSegmentMagic, kSegmentVersion, kSegmentHeaderBytes, kBytes, 0, 0};
  const std::string wrong =
      GENERATE(as<std::string>{}, "nothing", "seal", "magic", "version", "size", "rank");
  CAPTURE(wrong);
  if (wrong == "magic") header.magic[0] = 'X';
  if (wrong == "version") ++header.version;
  if (wrong == "size") header.segment_bytes += 4096;
  if (wrong == "rank") ++header.rank;
  REQUIRE(::pwrite(fd.get(), &header, sizeof header, 0) == sizeof header);
  if (wrong != "seal") REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK(connect_code(FakeDaemon(greeting(), fd.get())) == (wrong == "nothing" ? "no error" : "protocol"));
}

TEST_CASE("A refusal in place of the greeting reaches the caller") {
  CHECK(connect_code(FakeDaemon(R"({"ok":false,"error":{"code":"too_many_clients","message":"full"}})",
                                -1)) == "too_many_clients");
}

TEST_CASE("The reader waits for a daemon to come up, and gives up in time") {
  const ScratchFolder folder;
  const std::string path = folder / "s.sock";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(code_of([&] { Reader::connect(path, milliseconds(60)); }) == "connect");
  CHECK(std::chrono::steady_clock::now() - begin >= milliseconds(60));
  CHECK(code_of([&] { Reader::connect(std::string(200, 'x'), seconds(10)); }) == "connect");
  CHECK(code_of([&] { Reader::connect("", seconds(10)); }) == "connect");
}

TEST_CASE("A daemon that hangs up while a reader waits is an error, not a hang") {
  const Segment segment = sealed_segment(kBytes, 0);
  FakeDaemon daemon(greeting(), segment.fd(), [](int socket) {
    char byte = 0;
    while (::recv(socket, &byte, 1, 0) == 1 && byte != '\n') {
    }
  });
  Reader reader = Reader::connect(daemon.path(), seconds(10));
  CHECK(code_of([&] { reader.acquire(1, seconds(20)); }) == "disconnected");
}

TEST_CASE("A reply that makes no sense ends the connection, since its lease cannot be ended otherwise") {
  const Segment segment = sealed_segment(kBytes, 0);
  bool hung_up = false;
  {
    FakeDaemon daemon(greeting(), segment.fd(), [&](int socket) {
      char buffer[1000];
      if (::recv(socket, buffer, sizeof buffer, 0) <= 0) return;
      SendQueue queue;
      queue.push_line(acquired_with(R"({"name":"t","dtype":"F32","shape":[1],"offset":99999996,"bytes":4})"));
      queue.flush(socket);
      hung_up = ::recv(socket, buffer, sizeof buffer, 0) == 0;
    });
    Reader reader = Reader::connect(daemon.path(), seconds(10));
    CHECK(code_of([&] { reader.acquire(1, seconds(10)); }) == "protocol");
  }
  CHECK(hung_up);
}

TEST_CASE("A reader cannot write where it reads") {
  const Segment segment = sealed_segment(kBytes, 0);
  FakeDaemon daemon(greeting(), segment.fd());
  const Reader reader = Reader::connect(daemon.path(), seconds(10));
  void* const address = const_cast<void*>(reader.segment_data());
  CHECK(::mprotect(address, reader.segment_bytes(), PROT_READ | PROT_WRITE) == -1);
  CHECK(errno == EACCES);
}

}  // namespace
}  // namespace gemmad
