#include "config/config_table.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <vector>

#include "config/json_value.h"

namespace gemmad {

using nlohmann::json;

namespace {

// Each in the order of its enum.
constexpr std::string_view kModeNames[] = {"sharded", "batch_parallel", "adaptive"};
constexpr std::string_view kStrategyNames[] = {"tensor", "layer"};
constexpr std::string_view kSegmentsNames[] = {"per_rank", "per_node"};
constexpr std::string_view kWeightsNames[] = {"files", "random"};
constexpr std::string_view kPresetNames[] = {"none",       "gemma-3-270m", "gemma-3-1b",
                                             "gemma-3-4b", "gemma-3-12b",  "gemma-3-27b"};
constexpr std::string_view kProcessorPresetNames[] = {"none", "ltx-2", "ltx-2.3"};
constexpr std::string_view kWeightsCacheNames[] = {"node", "none"};
constexpr std::string_view kDeviceNames[] = {"auto", "cpu", "cuda"};
constexpr std::string_view kLogLevelNames[] = {"trace", "debug", "info", "warn", "error"};

template <auto member>
constexpr EnumField enum_field(std::span<const std::string_view> names) {
  using Enum = std::remove_reference_t<decltype(std::declval<DaemonConfig&>().*member)>;
  return {names, [](const DaemonConfig& config) { return static_cast<std::size_t>(config.*member); },
          [](DaemonConfig& config, std::size_t index) { config.*member = static_cast<Enum>(index); }};
}

using C = DaemonConfig;
constexpr bool kFixed = false;
constexpr bool kRunTime = true;
// What every JSON reader keeps exactly.
constexpr std::int64_t kMaxSeed = (std::int64_t{1} << 53) - 1;

// A Unix socket's address holds 107 bytes, and a rank's reader socket adds ".reader-9999" to this one:
// hence 95.
constexpr ConfigRow kRows[] = {
    {"model", PathField{&C::model, 4096}, "", kFixed,
     "Hugging Face model directory; needed, but with weights random and a preset"},
    {"weights", enum_field<&C::weights>(kWeightsNames), "", kFixed,
     "files: the model's; random: made up, for benchmarks: of model's directory config.json is read, and "
     "tokenizer.json where there is one"},
    {"weights_seed", IntegerField{&C::weights_seed, 0, kMaxSeed}, "", kFixed,
     "of random weights: the same seed makes the same ones"},
    {"preset", enum_field<&C::preset>(kPresetNames), "", kFixed,
     "of random weights without a model's directory: whose sizes to take; there is no tokenizer then"},
    {"embeddings_processor", PathField{&C::embeddings_processor, 4096}, "", kFixed,
     "LTX-2 checkpoint whose embeddings processor gives the outputs features and embeddings; empty: none"},
    {"projections", PathField{&C::projections, 4096}, "", kFixed,
     "packed text encoder that holds the processor's projections, where its checkpoint does not"},
    {"processor_preset", enum_field<&C::processor_preset>(kProcessorPresetNames), "", kFixed,
     "whose sizes a processor of random weights takes; ltx-2.3: 2.5's too"},
    {"mode", enum_field<&C::mode>(kModeNames), "", kRunTime,
     "sharded: a replica is cut over ranks; batch_parallel: every rank has one, prompts are dealt; adaptive: "
     "every rank has one, each job is dealt or cut, whichever is faster"},
    {"strategy", enum_field<&C::strategy>(kStrategyNames), "", kRunTime,
     "how sharded cuts: tensor, every layer into slices; layer, the layers into runs"},
    {"ranks_per_replica", IntegerField{&C::ranks_per_replica, 0, 9999}, "ranks", kRunTime,
     "of sharded; 0: one replica over all ranks that encode; less than these: prompts are dealt to the "
     "replicas"},
    {"encoder_ranks", IntegerListField{&C::encoder_ranks, 0, 9999, 10000}, "ranks", kRunTime,
     "ranks that hold the model; empty: all; the others receive and publish"},
    {"weights_cache", enum_field<&C::weights_cache>(kWeightsCacheNames), "", kFixed,
     "node: the model is read once into memory that the node's ranks share; none: from its files whenever "
     "needed"},
    {"device", enum_field<&C::device>(kDeviceNames), "", kFixed,
     "where the ranks compute; auto takes GPUs where there is one for every rank"},
    {"socket", PathField{&C::socket, 95}, "", kFixed,
     "control socket; empty is $XDG_RUNTIME_DIR/gemmad/control.sock, or /tmp/gemmad-UID/control.sock without "
     "it"},
    {"segments", enum_field<&C::segments>(kSegmentsNames), "", kFixed,
     "per_rank: every rank publishes in a segment of its own; per_node: a node's first rank publishes for "
     "all "
     "on it"},
    {"segment_mib", IntegerField{&C::segment_mib, 1, 1048576}, "MiB", kFixed, "size of an output segment"},
    {"result_ttl_ms", IntegerField{&C::result_ttl_ms, 100, 86400000}, "ms", kRunTime,
     "how long a result waits for its readers"},
    {"result_cache_mib", IntegerField{&C::result_cache_mib, -1, 524287}, "MiB", kRunTime,
     "how much of a segment may keep results for prompts that come again; less than half of segment_mib; -1: "
     "a "
     "quarter of it; 0: none"},
    {"deadline_ms", IntegerField{&C::deadline_ms, 1, 86400000}, "ms", kRunTime,
     "deadline of a request that names none"},
    {"max_tokens", IntegerField{&C::max_tokens, 1, 1024}, "tokens", kFixed, "most tokens of a prompt"},
    {"batch_tokens", IntegerField{&C::batch_tokens, 1, 1048576}, "tokens", kFixed,
     "most tokens of a batch; at least max_tokens"},
    {"max_prompts", IntegerField{&C::max_prompts, 1, 65536}, "prompts", kFixed, "most prompts of a request"},
    {"queue_length", IntegerField{&C::queue_length, 1, 65536}, "requests", kFixed, "most requests that wait"},
    {"max_clients", IntegerField{&C::max_clients, 1, 65536}, "clients", kFixed, "most clients at once"},
    {"max_readers", IntegerField{&C::max_readers, 1, 65536}, "readers", kFixed,
     "most readers of a rank at once"},
    {"max_line_bytes", IntegerField{&C::max_line_bytes, 4096, 1073741824}, "bytes", kFixed,
     "longest request line"},
    {"max_unsent_bytes", IntegerField{&C::max_unsent_bytes, 65536, 1073741824}, "bytes", kFixed,
     "replies that a client may leave unread before it is dropped"},
    {"client_stall_ms", IntegerField{&C::client_stall_ms, 100, 86400000}, "ms", kFixed,
     "how long a half-sent line or an unread reply may stand still before the client is dropped"},
    {"drain_ms", IntegerField{&C::drain_ms, 0, 3600000}, "ms", kRunTime,
     "how long a stop waits for running work"},
    {"idle_sleep_ms", IntegerField{&C::idle_sleep_ms, 0, 2592000000}, "ms", kRunTime,
     "without a request for so long, the ranks give their weights back until the next one; 0: never"},
    {"enhancer.model", PathField{&C::enhancer_model, 4096}, "", kFixed,
     "model directory that rewrites prompts; empty: the one that encodes them"},
    {"enhance.rank", IntegerField{&C::enhance_rank, -1, 9999}, "ranks", kFixed,
     "rank that rewrites prompts; -1: the least busy one"},
    {"enhance.slots", IntegerField{&C::enhance_slots, 1, 16}, "prompts", kFixed,
     "most prompts that are rewritten together"},
    {"enhance.context", IntegerField{&C::enhance_context, 64, 131072}, "tokens", kFixed,
     "most tokens of a prompt, with its system prompt and image, and its continuation together"},
    {"enhance.queue", IntegerField{&C::enhance_queue, 1, 65536}, "requests", kFixed,
     "most requests to rewrite a prompt that wait or run"},
    {"enhance.idle_ms", IntegerField{&C::enhance_idle_ms, 0, 86400000}, "ms", kRunTime,
     "without a prompt to rewrite for so long, the memory for it is given back"},
    {"enhance.system_prompt", PathField{&C::enhance_system_prompt, 4096}, "", kFixed,
     "UTF-8 file with the system prompt of a rewrite that names none; empty: gemmad's own"},
    {"enhance.system_prompt_image", PathField{&C::enhance_system_prompt_image, 4096}, "", kFixed,
     "the same where the prompt comes with an image"},
    {"heartbeat_ms", IntegerField{&C::heartbeat_ms, 50, 60000}, "ms", kRunTime,
     "how often the ranks look after each other"},
    {"collective_timeout_ms", IntegerField{&C::collective_timeout_ms, 1000, 3600000}, "ms", kFixed,
     "how long a rank waits for the others before all of them stop"},
    {"compute_timeout_ms", IntegerField{&C::compute_timeout_ms, 1000, 86400000}, "ms", kFixed,
     "how long a rank waits for the slowest one to compute a batch, or to take up another mode, before all "
     "of "
     "them stop"},
    {"compute_threads", IntegerField{&C::compute_threads, 0, 1024}, "threads", kFixed,
     "threads that compute in a rank; 0 is the node's cores divided by its ranks"},
    {"log_level", enum_field<&C::log_level>(kLogLevelNames), "", kRunTime, "least severity that is logged"},
};

/// The values of one type of field. A type is added by adding its overloads.
struct GetValue {
  const DaemonConfig& config;
  json operator()(const PathField& field) const { return config.*field.member; }
  json operator()(const IntegerField& field) const { return config.*field.member; }
  json operator()(const IntegerListField& field) const { return config.*field.member; }
  json operator()(const EnumField& field) const { return field.names[field.get(config)]; }
};

struct SetValue {
  const ConfigRow& row;
  DaemonConfig& config;
  const json& value;
  const std::string& source_name;

  void operator()(const PathField& field) const {
    config.*field.member =
        string_value(value, source_name, row.name, static_cast<std::size_t>(field.max_bytes));
  }
  void operator()(const IntegerField& field) const {
    config.*field.member = integer_value(value, source_name, row.name, field.min, field.max, row.unit);
  }
  void operator()(const IntegerListField& field) const {
    std::vector<std::int64_t> items;
    for (const json& item :
         array_value(value, source_name, row.name, static_cast<std::size_t>(field.max_items))) {
      items.push_back(integer_value(item, source_name, row.name, field.min, field.max, row.unit));
      if (std::count(items.begin(), items.end(), items.back()) > 1)
        throw ConfigError::at_key(source_name, row.name, "names " + std::to_string(items.back()) + " twice");
    }
    config.*field.member = std::move(items);
  }
  void operator()(const EnumField& field) const {
    const auto found = value.is_string() ? std::find(field.names.begin(), field.names.end(),
                                                     value.get_ref<const std::string&>())
                                         : field.names.end();
    if (found == field.names.end()) {
      std::string reason = "is " + describe(value) + ", must be ";
      for (const std::string_view& choice : field.names) {
        if (&choice != &field.names.front()) reason += ", ";
        reason.append("'").append(choice).append("'");
      }
      throw ConfigError::at_key(source_name, row.name, reason);
    }
    field.set(config, static_cast<std::size_t>(found - field.names.begin()));
  }
};

json integer_or_text(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size()) return number;
  return std::string(text);
}

/// Insertions, deletions and replacements that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (letter == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::span<const ConfigRow> config_table() {
  return kRows;
}

const ConfigRow* find_row(std::string_view key) {
  const auto found =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const ConfigRow& row) { return row.name == key; });
  return found == std::end(kRows) ? nullptr : found;
}

bool is_section(std::string_view key) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const ConfigRow& row) { return row.section() == key && !key.empty(); });
}

std::string_view nearest_key(std::string_view key) {
  if (key.size() > 64) return "";
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, key.size() / 3) + 1;
  for (const ConfigRow& row : kRows) {
    if (const std::size_t distance = edit_distance(key, row.name); distance < least) {
      least = distance;
      nearest = row.name;
    }
  }
  return nearest;
}

json get_value(const ConfigRow& row, const DaemonConfig& config) {
  return std::visit(GetValue{config}, row.field);
}

void set_value(const ConfigRow& row, DaemonConfig& config, const json& value,
               const std::string& source_name) {
  std::visit(SetValue{row, config, value, source_name}, row.field);
}

json value_from_text(const ConfigRow& row, std::string_view text) {
  if (std::holds_alternative<IntegerField>(row.field)) return integer_or_text(text);
  if (std::holds_alternative<IntegerListField>(row.field)) {
    // As in a file, too.
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    json items = json::array();
    if (text.empty()) return items;
    for (;;) {
      const std::size_t comma = text.find(',');
      items.push_back(integer_or_text(text.substr(0, comma)));
      if (comma == std::string_view::npos) return items;
      text.remove_prefix(comma + 1);
    }
  }
  return std::string(text);
}

std::string_view name(Mode mode) {
  return kModeNames[static_cast<std::size_t>(mode)];
}

std::string_view name(Strategy strategy) {
  return kStrategyNames[static_cast<std::size_t>(strategy)];
}

std::string_view name(Segments segments) {
  return kSegmentsNames[static_cast<std::size_t>(segments)];
}

std::string_view name(Weights weights) {
  return kWeightsNames[static_cast<std::size_t>(weights)];
}

std::string_view name(Preset preset) {
  return kPresetNames[static_cast<std::size_t>(preset)];
}

std::string_view name(ProcessorPreset preset) {
  return kProcessorPresetNames[static_cast<std::size_t>(preset)];
}

std::string_view name(WeightsCache cache) {
  return kWeightsCacheNames[static_cast<std::size_t>(cache)];
}

std::string_view name(DeviceChoice device) {
  return kDeviceNames[static_cast<std::size_t>(device)];
}

std::string_view name(LogLevel level) {
  return kLogLevelNames[static_cast<std::size_t>(level)];
}

}  // namespace gemmad
