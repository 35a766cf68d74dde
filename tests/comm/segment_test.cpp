#include "comm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "comm/host_memory.h"
#include "comm/segment_layout.h"
#include "tests/comm/socket_support.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kSegmentBytes = 64 * 4096;

/// What a reader has: a descriptor of its own for the same memory.
enum class Descriptor { kPassed, kReopened };

FileDescriptor readers_descriptor(const Segment& segment, Descriptor kind) {
  if (kind == Descriptor::kPassed) return FileDescriptor(check_system(::dup(segment.fd()), "dup"));
  const std::string link = "/proc/self/fd/" + std::to_string(segment.fd());
  return FileDescriptor(check_system(::open(link.c_str(), O_RDWR | O_CLOEXEC), "open " + link));
}

int errno_of(long result) {
  return result < 0 ? errno : 0;
}

TEST_CASE("A reader's descriptor can neither be written nor mapped writable nor resized") {
  const auto kind = GENERATE(Descriptor::kPassed, Descriptor::kReopened);
  CAPTURE(static_cast<int>(kind));
  Segment segment = Segment::create(kSegmentBytes, 0);
  segment.seal();
  segment.bytes()[kSegmentHeaderBytes] = std::byte{7};
  const FileDescriptor fd = readers_descriptor(segment, kind);

  CHECK(::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0) == MAP_FAILED);
  CHECK(errno == EPERM);
  CHECK(errno_of(::pwrite(fd.get(), "x", 1, kSegmentHeaderBytes)) == EPERM);
  CHECK(errno_of(::ftruncate(fd.get(), 0)) == EPERM);
  CHECK(errno_of(::ftruncate(fd.get(), 2 * kSegmentBytes)) == EPERM);
  CHECK(errno_of(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSegmentBytes)) ==
        EPERM);
  CHECK(errno_of(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE)) == EPERM);
  CHECK(segment.bytes()[kSegmentHeaderBytes] == std::byte{7});
}

TEST_CASE("A reader's mapping cannot be made writable, and sees what the owner writes later") {
  Segment segment = Segment::create(kSegmentBytes, 0);
  segment.seal();
  const FileDescriptor fd = readers_descriptor(segment, Descriptor::kPassed);
  void* const address = ::mmap(nullptr, kSegmentBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  REQUIRE(address != MAP_FAILED);
  CHECK(errno_of(::mprotect(address, kSegmentBytes, PROT_READ | PROT_WRITE)) == EACCES);
  CHECK(errno_of(::madvise(address, kSegmentBytes, MADV_REMOVE)) == EACCES);
  segment.bytes().back() = std::byte{42};
  CHECK(static_cast<const std::byte*>(address)[kSegmentBytes - 1] == std::byte{42});
  ::munmap(address, kSegmentBytes);
}

TEST_CASE("Another rank of the node attaches before the sealing, and writes results then and afterwards") {
  Segment segment = Segment::create(kSegmentBytes, 4);
  const Segment attached = Segment::attach(segment.address(), 4);
  CHECK(attached.rank() == 4);
  CHECK(attached.bytes().size() == kSegmentBytes);
  segment.seal();
  attached.bytes()[kSegmentHeaderBytes] = std::byte{11};
  CHECK(segment.bytes()[kSegmentHeaderBytes] == std::byte{11});
}

TEST_CASE("Nobody attaches to write after the sealing") {
  Segment segment = Segment::create(kSegmentBytes, 4);
  segment.seal();
  CHECK_THROWS_AS(Segment::attach(segment.address(), 4), SystemError);
}

TEST_CASE("A segment begins with its header and is zero behind it") {
  const Segment segment = Segment::create(kSegmentBytes, 3);
  SegmentHeader header{};
  std::memcpy(&header, segment.bytes().data(), sizeof header);
  CHECK(header.magic == kSegmentMagic);
  CHECK(header.version == kSegmentVersion);
  CHECK(header.header_bytes == kSegmentHeaderBytes);
  CHECK(header.segment_bytes == kSegmentBytes);
  CHECK(header.rank == 3);
  const auto results = segment.bytes().subspan(kSegmentHeaderBytes);
  CHECK(std::all_of(results.begin(), results.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_CASE("A segment has its memory from the start, and its descriptor stays out of other programs") {
  const Segment segment = Segment::create(kSegmentBytes, 0);
  struct stat status {};
  REQUIRE(::fstat(segment.fd(), &status) == 0);
  CHECK(static_cast<std::uint64_t>(status.st_size) == kSegmentBytes);
  CHECK(static_cast<std::uint64_t>(status.st_blocks) * 512 >= kSegmentBytes);
  CHECK((::fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("The size of a segment is rounded up to whole pages") {
  CHECK(Segment::create(kSegmentBytes - 1, 0).bytes().size() == kSegmentBytes);
  CHECK(Segment::create(kSegmentBytes + 1, 0).bytes().size() == kSegmentBytes + 4096);
}

TEST_CASE("A segment too small for a result is refused") {
  const auto size_bytes = GENERATE(std::uint64_t{0}, std::uint64_t{1}, kMinSegmentBytes - 1);
  CHECK_THROWS_AS(Segment::create(size_bytes, 0), std::invalid_argument);
}

TEST_CASE("A segment larger than the memory is refused with both numbers") {
  const std::uint64_t size_bytes =
      GENERATE(std::uint64_t{1} << 46, std::uint64_t{1} << 62, ~std::uint64_t{0});
  const std::string message = message_of([&] { Segment::create(size_bytes, 5); });
  CAPTURE(message);
  CHECK(message.find("rank 5") != std::string::npos);
  CHECK(message.find(std::to_string(std::min(size_bytes, std::uint64_t{0x7ffffffffffff000}))) !=
        std::string::npos);
  CHECK(message.find("bytes of memory are available") != std::string::npos);
}

TEST_CASE("Moving a segment keeps its bytes where they are") {
  Segment segment = Segment::create(kSegmentBytes, 1);
  const auto bytes = segment.bytes();
  Segment moved = std::move(segment);
  CHECK(moved.bytes().data() == bytes.data());
  Segment other = Segment::create(kMinSegmentBytes, 2);
  other = std::move(moved);
  CHECK(other.bytes().data() == bytes.data());
  CHECK(other.rank() == 1);
}

TEST_CASE("Some memory is available, and no more than the machine has") {
  const std::uint64_t available = available_memory_bytes();
  CHECK(available > 0);
  CHECK(available <= static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace gemmad
