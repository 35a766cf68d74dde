#include "comm/doorbell.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

namespace gemmad {

namespace {

constexpr std::size_t kPathOffset = offsetof(sockaddr_un, sun_path);

bool sent_by_this_user(const msghdr& header) {
  for (const cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&header), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(part), sizeof credentials);
    return credentials.uid == ::geteuid();
  }
  return false;
}

}  // namespace

Doorbell::Doorbell()
    : socket_(check_system(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                           "open the doorbell socket")) {
  const int on = 1;
  check_system(::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on),
               "ask for senders' credentials");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An address of the family alone lets the kernel choose a free abstract name.
  check_system(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)),
               "bind the doorbell socket");
  socklen_t size = sizeof address;
  check_system(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size),
               "name the doorbell socket");
  const std::size_t name_bytes = size - kPathOffset;
  if (name_bytes > address_.bytes.size()) throw SystemError(ENAMETOOLONG, "name the doorbell socket");
  std::memcpy(address_.bytes.data(), address.sun_path, name_bytes);
  address_.size_bytes = static_cast<std::uint32_t>(name_bytes);
}

bool Doorbell::answer() {
  bool rung = false;
  for (;;) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    if (::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return rung;
      throw SystemError(errno, "read the doorbell socket");
    }
    rung = rung || sent_by_this_user(header);
  }
}

bool Doorbell::ring(const DoorbellAddress& address) {
  if (address.size_bytes == 0) return false;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address.bytes.data(), address.size_bytes);
  const char byte = 1;
  const auto size = static_cast<socklen_t>(kPathOffset + address.size_bytes);
  // A full queue means that rings wait there already: the other side will wake.
  return ::sendto(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&to), size) >= 0 ||
         errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
}

}  // namespace gemmad
