// What options of enhancement are in a request, and what comes back on the terminal.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "daemon/ctl/enhance/enhance_options.h"

namespace gemmad {

/// The fields of the options, with the bytes of their files. Blocks on the disk. Throws ConfigError naming a
/// file that cannot be read or is too long.
nlohmann::json enhance_fields(const EnhanceCtlOptions& options);

/// Prints a token event as it comes: its text, or as it is. For ControlClient::call.
std::function<void(const nlohmann::json& event)> print_tokens(bool as_json);

/// Says on stderr that the text is not whole, where it is not. `enhanced`: the reply, or its part.
void warn_of_stop(const nlohmann::json& enhanced);

}  // namespace gemmad
