// The daemon's settings: the struct that the daemon reads, and how it is filled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_error.h"
#include "config/processor_config.h"

namespace gemmad {

/// How a batch is spread over the ranks that encode.
enum class Mode { kSharded, kBatchParallel, kAdaptive };
/// How sharded cuts the model: every layer into slices, or the layers into runs.
enum class Strategy { kTensor, kLayer };
/// Who holds an output segment: every rank its own, or the first rank of a node for all on it.
enum class Segments { kPerRank, kPerNode };
/// Where the model's weights come from: its files, or nowhere, for benchmarks that need none.
enum class Weights { kFiles, kRandom };
/// A published model whose sizes random weights may take.
enum class Preset { kNone, kGemma3_270m, kGemma3_1b, kGemma3_4b, kGemma3_12b, kGemma3_27b };
/// Whether a node keeps a copy of the model in shared memory.
enum class WeightsCache { kNode, kNone };
/// Where the ranks compute. kAuto takes GPUs where this build can and every rank has one.
enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

/// One member a key, of the same name (with _ for the dot of a section). The initial values here are the
/// defaults; types, bounds and meaning of each key are in config_table.cpp.
struct DaemonConfig {
  std::string model;
  Weights weights = Weights::kFiles;
  std::int64_t weights_seed = 1;
  Preset preset = Preset::kNone;
  std::string embeddings_processor;
  std::string projections;
  ProcessorPreset processor_preset = ProcessorPreset::kNone;
  Mode mode = Mode::kBatchParallel;
  Strategy strategy = Strategy::kTensor;
  std::int64_t ranks_per_replica = 0;
  std::vector<std::int64_t> encoder_ranks;
  WeightsCache weights_cache = WeightsCache::kNode;
  DeviceChoice device = DeviceChoice::kAuto;
  std::string socket;  // empty only before load_config has put default_socket_path() there
  Segments segments = Segments::kPerRank;
  std::int64_t segment_mib = 1024;
  std::int64_t result_ttl_ms = 60'000;
  std::int64_t result_cache_mib = -1;
  std::int64_t deadline_ms = 60'000;
  std::int64_t max_tokens = 1024;
  std::int64_t batch_tokens = 8192;
  std::int64_t max_prompts = 256;
  std::int64_t queue_length = 256;
  std::int64_t max_clients = 512;
  std::int64_t max_readers = 256;
  std::int64_t max_line_bytes = 8 * 1024 * 1024;
  std::int64_t max_unsent_bytes = 64 * 1024 * 1024;
  std::int64_t client_stall_ms = 60'000;
  std::int64_t drain_ms = 30'000;
  std::int64_t idle_sleep_ms = 0;
  std::string enhancer_model;
  std::int64_t enhance_rank = -1;
  std::int64_t enhance_slots = 4;
  std::int64_t enhance_context = 4096;
  std::int64_t enhance_queue = 64;
  std::int64_t enhance_idle_ms = 60'000;
  std::string enhance_system_prompt;
  std::string enhance_system_prompt_image;
  std::int64_t heartbeat_ms = 1'000;
  std::int64_t collective_timeout_ms = 60'000;
  std::int64_t compute_timeout_ms = 600'000;
  std::int64_t compute_threads = 0;
  LogLevel log_level = LogLevel::kInfo;

  bool operator==(const DaemonConfig&) const = default;
};

/// Parses a config file's text over the defaults and checks it whole. Reads nothing but `text`. An absent
/// `socket` stays empty. Throws ConfigError.
DaemonConfig parse_config(std::string_view text, const std::string& source_name);

/// The settings to run with: defaults, then `file` if given, then `overrides` in order (each "key=value", the
/// value written as in the file but without quotes; a later one wins), then the default socket if none was
/// named. Errors in overrides name "command line". Throws ConfigError.
DaemonConfig load_config(const std::optional<std::filesystem::path>& file,
                         std::span<const std::string> overrides);

/// $XDG_RUNTIME_DIR/gemmad/control.sock; without that variable (or with a relative path in it)
/// /tmp/gemmad-UID/control.sock.
std::string default_socket_path();

/// What a running daemon needs beyond what parses: `model`, or with random weights either `model` or
/// `preset`, and no preset or file that would count for nothing. Throws ConfigError.
void validate_for_run(const DaemonConfig& config);

/// `config` with the keys of the object `change` set, checked as a whole. Throws ConfigError.
DaemonConfig changed_config(const DaemonConfig& config, const nlohmann::json& change,
                            const std::string& source_name);

/// Throws ConfigError naming the first key that differs and cannot be changed while the daemon runs.
void validate_change(const DaemonConfig& running, const DaemonConfig& wanted, const std::string& source_name);

/// How much of a segment may be kept for prompts that come again, as result_cache_mib says.
std::uint64_t result_cache_bytes(const DaemonConfig& config);

/// Every key with its value in use, as an object that parse_config reads back to an equal DaemonConfig.
nlohmann::json effective_config(const DaemonConfig& config);

/// The keys for --help, one a line: key, type, default, bounds with unit, whether it changes at run time,
/// meaning.
std::string config_help();

/// "batch_parallel", "cpu", "info": the names used in the file.
std::string_view name(Mode mode);
std::string_view name(Strategy strategy);
std::string_view name(Segments segments);
std::string_view name(Weights weights);
std::string_view name(Preset preset);
std::string_view name(ProcessorPreset preset);
std::string_view name(WeightsCache cache);
std::string_view name(DeviceChoice device);
std::string_view name(LogLevel level);

}  // namespace gemmad
