#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/host_memory.h"
#include "tests/comm/socket_support.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBytes = 16 * kPage;

SharedMemory make_memory() {
  return SharedMemory::create("test memory", kBytes);
}

/// How a forked child that runs `body` ends: its status if it leaves, minus the signal if one kills it. A
/// body that throws leaves with 99.
template <typename Body>
int end_of_child(const Body& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int errno_of(long result) {
  return result < 0 ? errno : 0;
}

/// Open memory of gemmad's by this name in this process.
std::size_t open_descriptors(const std::string& name) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.find("gemmad " + name) != std::string::npos) ++count;
  }
  return count;
}

std::uint64_t allocated_bytes(const SharedMemory& memory) {
  struct stat status {};
  check_system(::fstat(memory.fd(), &status), "fstat");
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

}  // namespace

TEST_CASE("Another process that attaches sees what is written, and its own writes are seen") {
  SharedMemory memory = make_memory();
  memory.bytes()[5] = std::byte{7};
  const SharedMemory::Address address = memory.address();
  const int end = end_of_child([&] {
    SharedMemory attached = SharedMemory::attach("test memory", address);
    if (attached.bytes().size() != kBytes || attached.bytes().data() == memory.bytes().data()) return 1;
    if (attached.bytes()[5] != std::byte{7}) return 2;
    attached.bytes()[kBytes - 1] = std::byte{9};
    return 0;
  });
  CHECK(end == 0);
  CHECK(memory.bytes()[kBytes - 1] == std::byte{9});
}

TEST_CASE("Memory is zero and not there until it is allocated") {
  SharedMemory memory = make_memory();
  CHECK(allocated_bytes(memory) == 0);
  memory.allocate(4 * kPage, 8 * kPage);
  CHECK(allocated_bytes(memory) == 4 * kPage);
  memory.allocate(8 * kPage, 8 * kPage);
  CHECK(allocated_bytes(memory) == 4 * kPage);
  const auto bytes = memory.bytes();
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_CASE("Sealed memory refuses later writable mappings, writes and resizes through any descriptor") {
  SharedMemory memory = make_memory();
  SharedMemory before = SharedMemory::attach("test memory", memory.address());
  memory.seal();
  CHECK(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0) == MAP_FAILED);
  CHECK(errno == EPERM);
  CHECK(errno_of(::pwrite(memory.fd(), "x", 1, 0)) == EPERM);
  CHECK(errno_of(::ftruncate(memory.fd(), 2 * kBytes)) == EPERM);
  CHECK(errno_of(::fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE)) == EPERM);
  CHECK_THROWS_AS(SharedMemory::attach("test memory", memory.address()), SystemError);
  // Writable mappings from before stay so.
  before.bytes()[0] = std::byte{1};
  memory.bytes()[1] = std::byte{2};
  CHECK(memory.bytes()[0] == std::byte{1});
  CHECK(before.bytes()[1] == std::byte{2});
}

TEST_CASE("Protected memory can be read but not written, here alone") {
  SharedMemory memory = make_memory();
  SharedMemory other = SharedMemory::attach("test memory", memory.address());
  memory.protect();
  other.bytes()[3] = std::byte{4};
  volatile std::byte* const bytes = memory.bytes().data();
  CHECK(end_of_child([&] { return bytes[3] == std::byte{4} ? 0 : 1; }) == 0);
  // A sanitizer that reports the fault itself leaves with a status of its own.
  CHECK(end_of_child([&] {
          bytes[3] = std::byte{5};
          return 0;
        }) != 0);
}

TEST_CASE("Pages that were let go keep their contents, and so do their neighbours") {
  SharedMemory memory = make_memory();
  for (std::size_t i = 0; i < kBytes; ++i)
    memory.bytes()[i] = static_cast<std::byte>(i % 251);
  memory.let_pages_go(memory.bytes().subspan(kPage + 17, 3 * kPage));
  memory.let_pages_go(memory.bytes().subspan(9, 0));
  bool same = true;
  for (std::size_t i = 0; i < kBytes; ++i)
    same = same && memory.bytes()[i] == static_cast<std::byte>(i % 251);
  CHECK(same);
}

TEST_CASE("Memory larger than the host has is refused by name with both numbers") {
  const std::uint64_t size_bytes = std::uint64_t{1} << 46;
  const std::string message = message_of([&] { SharedMemory::create("test memory", size_bytes); });
  INFO(message);
  CHECK(message.starts_with("test memory: "));
  CHECK(message.find(std::to_string(size_bytes) + " bytes are needed") != std::string::npos);
  CHECK(message.find("bytes of memory are available") != std::string::npos);
}

TEST_CASE("An address that leads nowhere is refused by name") {
  SharedMemory::Address address;
  {
    const SharedMemory memory = make_memory();
    address = memory.address();
  }
  address.fd = 1 << 20;
  const std::string message = message_of([&] { SharedMemory::attach("test memory", address); });
  INFO(message);
  CHECK(message.starts_with("test memory: open /proc/"));
}

TEST_CASE("Nothing is left behind when the last holder lets go") {
  std::size_t mapped = 0;
  {
    const SharedMemory memory = make_memory();
    const SharedMemory attached = SharedMemory::attach("test memory", memory.address());
    mapped = open_descriptors("test memory");
  }
  CHECK(mapped == 2);
  CHECK(open_descriptors("test memory") == 0);
}

TEST_CASE("Attached memory outlives its maker's hold") {
  std::optional<SharedMemory> memory(make_memory());
  memory->bytes()[0] = std::byte{8};
  const SharedMemory attached = SharedMemory::attach("test memory", memory->address());
  memory.reset();
  CHECK(attached.bytes()[0] == std::byte{8});
}

TEST_CASE("Its descriptor stays out of other programs") {
  const SharedMemory memory = make_memory();
  CHECK((::fcntl(memory.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("Moving memory keeps its bytes where they are") {
  SharedMemory memory = make_memory();
  const auto bytes = memory.bytes();
  SharedMemory moved = std::move(memory);
  CHECK(moved.bytes().data() == bytes.data());
  SharedMemory assigned;
  assigned = std::move(moved);
  CHECK(assigned.bytes().data() == bytes.data());
  CHECK(assigned.address().size_bytes == kBytes);
}

}  // namespace gemmad
