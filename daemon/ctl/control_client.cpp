#include "daemon/ctl/control_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

namespace gemmad {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTryEvery{50};
// A daemon that still loads accepts connections and answers when it is ready. A living one answers at once.
constexpr std::chrono::duration<double> kAnswersWithin{10};

FileDescriptor connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw ClientError("the socket's path has " + std::to_string(path.size()) + " bytes; at most " +
                      std::to_string(sizeof address.sun_path - 1) + " are possible: " + path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  FileDescriptor socket(check_system(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "open a socket"));
  check_system(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
               "connect to " + path);
  return socket;
}

/// How long a recv may wait; 0 is for ever.
void set_receive_timeout(int socket, std::chrono::duration<double> timeout) {
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  const timeval limit{microseconds / 1'000'000, microseconds % 1'000'000};
  check_system(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "set a socket's timeout");
}

}  // namespace

ControlClient ControlClient::connect(const std::string& socket, std::chrono::duration<double> wait) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
  for (;;) {
    std::string reason;
    try {
      ControlClient client(connect_to(socket));
      const std::chrono::duration<double> left = deadline - Clock::now();
      set_receive_timeout(client.socket_.get(), std::max(left, kAnswersWithin));
      const nlohmann::json reply = client.call({{"op", "health"}});
      if (reply.value("ok", false)) {
        set_receive_timeout(client.socket_.get(), {});
        return client;
      }
      reason = "the daemon refuses: " + text_of(reply.at("error"));
    } catch (const SystemError& error) {
      reason = error.what();
      if (error.code() == std::errc::permission_denied)
        throw ClientError(reason + "; only the user that runs gemmad, and root, may talk to it");
    } catch (const ClientError& error) {
      reason = error.what();
    }
    if (Clock::now() >= deadline) {
      throw ClientError(reason +
                        "; is gemmad running, with this --socket? (--wait-ready SECONDS waits for it)");
    }
    std::this_thread::sleep_for(kTryEvery);
  }
}

nlohmann::json ControlClient::call(const nlohmann::json& request, const OnEvent& on_event) {
  const int id = next_id_;
  send(line_of(request));
  for (;;) {
    nlohmann::json reply = nlohmann::json::parse(receive_line(), nullptr, false);
    if (!reply.is_object()) throw ClientError("the daemon's reply is no JSON object");
    const auto reply_id = reply.find("id");
    // A reply without an id is about a request that the daemon could not read: there is only this one.
    if (reply_id != reply.end() && !reply_id->is_null() && *reply_id != id) continue;
    if (!reply.contains("event")) return reply;
    if (on_event) on_event(reply);
  }
}

std::string ControlClient::line_of(const nlohmann::json& request) {
  nlohmann::json with_id = request;
  with_id["id"] = next_id_++;
  try {
    return with_id.dump() + '\n';
  } catch (const nlohmann::json::exception&) {
    throw ClientError("the request holds text that is not UTF-8");
  }
}

std::string ControlClient::exchange(const std::string& line) {
  send(line);
  return receive_line();
}

void ControlClient::hang_up() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void ControlClient::send(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const auto size = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw ClientError(std::string("the daemon went away: ") + std::strerror(errno));
    sent += static_cast<std::size_t>(size);
  }
}

std::string ControlClient::receive_line() {
  std::array<char, 65536> buffer;
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = received_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    const auto size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) throw ClientError("the daemon does not answer; it may still be loading");
    if (size <= 0) throw ClientError("the daemon went away before it answered");
    received_.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

std::string text_of(const nlohmann::json& error) {
  return error.at("code").get<std::string>() + ": " + error.at("message").get<std::string>();
}

}  // namespace gemmad
