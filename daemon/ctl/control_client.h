// A client's connection to the control socket.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// The daemon cannot be reached or does not answer as it should. what() says what to do.
class ClientError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One request at a time. Blocks until the daemon has answered.
class ControlClient {
 public:
  /// Connects and makes sure that the daemon answers; tries again until `wait` is over. Throws ClientError.
  static ControlClient connect(const std::string& socket, std::chrono::duration<double> wait);

  /// Called with each event that comes before a reply.
  using OnEvent = std::function<void(const nlohmann::json& event)>;

  /// Sends `request` (an object without "id") and returns the reply. Throws ClientError when the daemon goes
  /// away.
  nlohmann::json call(const nlohmann::json& request, const OnEvent& on_event = {});

  /// The two steps of a call() for those who time it. `request` as the line that exchange() sends.
  std::string line_of(const nlohmann::json& request);
  /// Sends a line that line_of() made and returns the one that answers it, unread. Throws ClientError.
  std::string exchange(const std::string& line);

  /// Ends a call() or exchange() that another thread waits in, and every later one, with ClientError.
  void hang_up() noexcept;

 private:
  explicit ControlClient(FileDescriptor socket) : socket_(std::move(socket)) {}
  void send(const std::string& bytes);
  std::string receive_line();

  FileDescriptor socket_;
  std::string received_;
  int next_id_ = 1;
};

/// A refusal for people: "code: message". `error`: of a reply or a prompt.
std::string text_of(const nlohmann::json& error);

}  // namespace gemmad
