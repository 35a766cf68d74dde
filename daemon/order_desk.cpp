#include "daemon/order_desk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gemmad {

bool OrderDesk::give(Giver giver, OrderKind kind, std::string settings) {
  if (!queue_.push(Order{kind, std::move(settings), next_ticket_})) return false;
  givers_.emplace(next_ticket_++, std::move(giver));
  return true;
}

void OrderDesk::reload(const DaemonConfig& running) {
  try {
    const DaemonConfig wanted = load_settings_();
    validate_change(running, wanted, "settings read again");
    spdlog::info("settings read again");
    if (!queue_.push(Order{OrderKind::kReconfigure, effective_config(wanted).dump(), 0}))
      spdlog::warn("too many orders wait already: the changed settings are dropped");
  } catch (const ConfigError& error) {
    spdlog::error("the settings stay as they were: {}", error.what());
  }
}

std::optional<OrderDesk::Giver> OrderDesk::take_giver(std::uint64_t ticket) {
  const auto found = givers_.extract(ticket);
  if (found.empty()) return std::nullopt;
  return found.mapped();
}

bool OrderDesk::owes(ClientId client) const {
  return std::any_of(givers_.begin(), givers_.end(),
                     [&](const auto& entry) { return entry.second.client == client; });
}

void OrderDesk::forget(ClientId client) {
  std::erase_if(givers_, [&](const auto& entry) {
    if (entry.second.client != client) return false;
    queue_.remove_order(entry.first);
    return true;
  });
}

bool OrderDesk::owes(ClientId client, const RequestId& request) const {
  return std::any_of(givers_.begin(), givers_.end(), [&](const auto& entry) {
    return entry.second.client == client && entry.second.request == request;
  });
}

std::vector<OrderDesk::Giver> OrderDesk::withdraw_all() {
  std::vector<Giver> givers;
  std::erase_if(givers_, [&](const auto& entry) {
    if (!queue_.remove_order(entry.first)) return false;
    givers.push_back(entry.second);
    return true;
  });
  return givers;
}

std::string wanted_change(const DaemonConfig& running, const SwitchRequest& request) {
  nlohmann::json change = nlohmann::json::object();
  if (request.mode) change["mode"] = *request.mode;
  if (request.strategy) change["strategy"] = *request.strategy;
  if (request.ranks_per_replica) change["ranks_per_replica"] = *request.ranks_per_replica;
  if (request.encoder_ranks) change["encoder_ranks"] = *request.encoder_ranks;
  changed_config(running, change, "request");
  return change.dump();
}

}  // namespace gemmad
