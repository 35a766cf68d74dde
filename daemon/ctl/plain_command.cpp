#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/ctl/commands.h"

namespace gemmad {

using nlohmann::json;

namespace {

json switch_fields(const SwitchOptions& options) {
  json fields = json::object();
  if (!options.mode.empty()) fields["mode"] = options.mode;
  if (!options.strategy.empty()) fields["strategy"] = options.strategy;
  if (options.ranks_per_replica) fields["ranks_per_replica"] = *options.ranks_per_replica;
  if (options.encoder_ranks) fields["encoder_ranks"] = *options.encoder_ranks;
  if (fields.empty())
    throw CtlUsageError("switch needs one of --mode, --strategy, --ranks-per-replica, --encoder-ranks");
  return fields;
}

}  // namespace

int plain_command(ControlClient& client, const CtlOptions& options) {
  json request = {{"op", options.command}};
  if (options.command == "cancel") {
    if (options.job.has_value() == !options.name.empty())
      throw CtlUsageError("cancel needs one of --job N and --name NAME");
    if (options.job) request["job"] = *options.job;
    if (!options.name.empty()) request["name"] = options.name;
  }
  if (options.command == "switch") request.update(switch_fields(options.switched));
  json reply = client.call(request);
  if (!reply.value("ok", false)) {
    std::fprintf(stderr, "gemmactl: %s\n", text_of(reply["error"]).c_str());
    return 1;
  }
  if (options.command == "metrics" && !options.json) {
    std::printf("%s", reply["text"].get<std::string>().c_str());
  } else {
    std::printf("%s\n", reply.dump(options.json ? -1 : 2).c_str());
  }
  // What was to be cancelled may run already.
  return options.command == "cancel" && !reply.value("cancelled", false) ? 1 : 0;
}

}  // namespace gemmad
