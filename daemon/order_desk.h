// Takes orders from clients and from outside, and remembers who waits for which.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/line_server.h"
#include "config/daemon_config.h"
#include "daemon/desk.h"
#include "daemon/job_queue.h"
#include "daemon/order.h"
#include "daemon/protocol.h"

namespace gemmad {

/// Used by the control thread alone.
class OrderDesk {
 public:
  using ClientId = LineServer::ClientId;
  using Giver = Asker;

  /// `load_settings` reads the daemon's settings anew; throws ConfigError. `queue` must outlive the desk.
  OrderDesk(JobQueue& queue, std::function<DaemonConfig()> load_settings)
      : queue_(queue), load_settings_(std::move(load_settings)) {}

  /// Queues an order; false when the queue takes none.
  bool give(Giver giver, OrderKind kind, std::string settings = {});
  /// Reads the settings anew and queues what has changed from `running`. Whatever is wrong with them is
  /// logged, and nothing changes.
  void reload(const DaemonConfig& running);

  /// Who waits for the order that has ended, if anybody does.
  std::optional<Giver> take_giver(std::uint64_t ticket);
  bool owes(ClientId client) const;
  bool owes(ClientId client, const RequestId& request) const;
  /// The client has gone: what it has waiting is given up.
  void forget(ClientId client);
  /// Takes back every order that waits, and tells who gave it.
  std::vector<Giver> withdraw_all();

 private:
  JobQueue& queue_;
  std::function<DaemonConfig()> load_settings_;
  std::uint64_t next_ticket_ = 1;
  std::map<std::uint64_t, Giver> givers_;  // by ticket
};

/// The settings that a switch is to change, as an order carries them. Throws ConfigError for what cannot be
/// with the `running` ones.
std::string wanted_change(const DaemonConfig& running, const SwitchRequest& request);

}  // namespace gemmad
