// The fields of an encode request that options choose.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "daemon/ctl/options.h"

namespace gemmad {

/// An encode request with outputs, layers, name and the like as `options` has them, and no prompts yet.
nlohmann::json encode_fields(const CtlOptions& options);

}  // namespace gemmad
