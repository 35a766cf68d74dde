#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <stdexcept>
#include <utility>

#include "comm/host_memory.h"

// Kernel 5.1; libc headers of some distributions are older than their kernels.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace gemmad {
namespace {

[[noreturn]] void throw_too_little(const std::string& name, std::uint64_t size_bytes) {
  throw std::runtime_error(name + ": " + std::to_string(size_bytes) + " bytes are needed, only " +
                           std::to_string(available_memory_bytes()) +
                           " bytes of memory are available; make it smaller or free memory");
}

}  // namespace

SharedMemory SharedMemory::create(const std::string& name, std::uint64_t size_bytes) {
  // Asked first: the kernel would rather kill a process than refuse such pages.
  if (size_bytes > available_memory_bytes()) throw_too_little(name, size_bytes);
  FileDescriptor fd(check_system(::memfd_create(("gemmad " + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING),
                                 name + ": memfd_create"));
  check_system(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), name + ": ftruncate");
  return {name, std::move(fd), size_bytes};
}

SharedMemory SharedMemory::attach(const std::string& name, const Address& address) {
  const std::string file = "/proc/" + std::to_string(address.pid) + "/fd/" + std::to_string(address.fd);
  const std::string advice = "; ranks of a node must share one PID namespace and one user";
  FileDescriptor fd(check_system(::open(file.c_str(), O_RDWR | O_CLOEXEC),
                                 name + ": open " + file + " of another rank on this node" + advice));
  struct stat status {};
  check_system(::fstat(fd.get(), &status), name + ": stat " + file);
  if (status.st_dev != address.device || status.st_ino != address.inode ||
      static_cast<std::uint64_t>(status.st_size) != address.size_bytes) {
    throw std::runtime_error(name + ": " + file + " is not the memory of that rank" + advice);
  }
  return {name, std::move(fd), address.size_bytes};
}

SharedMemory::SharedMemory(std::string name, FileDescriptor fd, std::uint64_t size_bytes)
    : name_(std::move(name)), fd_(std::move(fd)) {
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (address == MAP_FAILED) throw SystemError(errno, name_ + ": mmap");
  bytes_ = {static_cast<std::byte*>(address), size_bytes};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : name_(std::move(other.name_)), fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

SharedMemory::Address SharedMemory::address() const {
  struct stat status {};
  check_system(::fstat(fd_.get(), &status), name_ + ": stat");
  return {::getpid(), fd_.get(), bytes_.size(), status.st_dev, status.st_ino};
}

void SharedMemory::allocate(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  int error = 0;
  do {
    error = posix_fallocate(fd_.get(), static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  } while (error == EINTR);
  if (error == ENOSPC || error == ENOMEM) throw_too_little(name_, end - begin);
  if (error != 0) throw SystemError(error, name_ + ": posix_fallocate");
}

void SharedMemory::seal() {
  check_system(
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
      name_ + ": seal it (needs Linux 5.1)");
}

void SharedMemory::protect() {
  check_system(::mprotect(bytes_.data(), bytes_.size(), PROT_READ), name_ + ": mprotect");
}

void SharedMemory::let_pages_go(std::span<const std::byte> part) const noexcept {
  // Neighbours on the outermost pages lose nothing: their contents stay as well.
  constexpr std::size_t kPageBytes = 4096;
  const auto begin = static_cast<std::size_t>(part.data() - bytes_.data()) / kPageBytes * kPageBytes;
  const auto end = static_cast<std::size_t>(part.data() + part.size() - bytes_.data());
  if (begin < end) ::madvise(bytes_.data() + begin, end - begin, MADV_DONTNEED);
}

}  // namespace gemmad
