// The options of gemmactl bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gemmad {

/// Whose readers copy the results.
enum class ReadBy { kNobody, kOneRank, kAllRanks };

struct BenchOptions {
  std::string tokens_text = "128";        // as it was given
  std::vector<std::int64_t> tokens{128};  // of each prompt of a request
  std::int64_t concurrency = 1;
  std::optional<std::int64_t> requests;  // in all; neither this nor `seconds`: kDefaultSeconds
  std::optional<double> seconds;         // whichever of the two ends first
  std::int64_t warmup = 1;               // requests of each connection
  ReadBy read_by = ReadBy::kOneRank;
  int read_rank = 0;                  // of kOneRank
  std::optional<std::uint64_t> seed;  // another one each time without

  static constexpr double kDefaultSeconds = 10;
};

bool is_bench_option(const std::string& name);

/// `name` must be a bench option. Throws CtlUsageError for a value that it cannot have.
void set_bench_option(BenchOptions& options, const std::string& name, const std::string& value);

std::string bench_help_text();

}  // namespace gemmad
