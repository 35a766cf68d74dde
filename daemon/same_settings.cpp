#include "daemon/same_settings.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "daemon/agreement.h"

namespace gemmad {

namespace {

using Settings = std::map<std::string, std::string>;  // values as JSON, by key: "enhance.slots"

// Of these each rank follows its own.
constexpr std::string_view kOwn[] = {"compute_threads", "log_level", "socket"};
// Files, which may be elsewhere on another node; but they are there on all of them or on none.
constexpr std::string_view kFiles[] = {
    "embeddings_processor", "enhance.system_prompt", "enhance.system_prompt_image", "enhancer.model", "model",
    "projections"};

bool is_among(std::span<const std::string_view> keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void collect(const nlohmann::json& section, const std::string& prefix, Settings& settings) {
  for (const auto& [name, value] : section.items()) {
    const std::string key = prefix + name;
    if (value.is_object()) {
      collect(value, key + ".", settings);
    } else if (is_among(kFiles, key)) {
      settings[key] = value == "" ? "not set" : "set";
    } else if (!is_among(kOwn, key)) {
      settings[key] = value.dump();
    }
  }
}

Settings common_part(const DaemonConfig& config) {
  Settings settings;
  collect(effective_config(config), "", settings);
  return settings;
}

/// `mine` of rank 0, on every rank.
std::string text_of_rank_0(Bootstrap& bootstrap, const std::string& mine, std::chrono::milliseconds timeout) {
  if (bootstrap.info().rank == 0) {
    bootstrap.announce(std::as_bytes(std::span(mine)), timeout);
    return mine;
  }
  const auto message = bootstrap.wait_announcement(timeout);
  if (!message)
    throw BootstrapError("rank 0 did not tell its settings within " + std::to_string(timeout.count()) +
                         " ms");
  return {reinterpret_cast<const char*>(message->data()), message->size()};
}

void compare(const Settings& mine, const Settings& of_rank_0) {
  for (const auto& [key, value] : of_rank_0) {
    const auto own = mine.find(key);
    const std::string here = own == mine.end() ? "unknown" : own->second;
    if (here == value) continue;
    throw std::runtime_error("the setting " + key + " is " + here + " here and " + value +
                             " on rank 0; start all ranks with the same config and options");
  }
}

}  // namespace

void check_same_settings(Bootstrap& bootstrap, const DaemonConfig& config,
                         std::chrono::milliseconds timeout) {
  const Settings mine = common_part(config);
  const std::string of_rank_0 = text_of_rank_0(bootstrap, nlohmann::json(mine).dump(), timeout);
  agree(bootstrap, timeout, [&] { compare(mine, nlohmann::json::parse(of_rank_0).get<Settings>()); });
}

}  // namespace gemmad
