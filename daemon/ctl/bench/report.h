// What a benchmark measured, for programs and for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/ctl/bench/load.h"
#include "daemon/ctl/bench/tally.h"
#include "daemon/ctl/options.h"

namespace gemmad {

/// Counts, rates, percentiles and shares of time as an object. Where no request succeeded, times, rates and
/// shares are null. `copying_ranks`: whose readers copied.
nlohmann::json bench_report(const TallyTotals& totals, const LoadEnd& end, const CtlOptions& options,
                            const std::vector<int>& copying_ranks);

/// The table of a report, as lines.
std::string bench_table(const nlohmann::json& report);

}  // namespace gemmad
