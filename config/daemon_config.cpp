#include "config/daemon_config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/config_table.h"
#include "config/json_value.h"
#include "config/strict_json.h"

namespace gemmad {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxSchemaNameBytes = 4096;

const ConfigRow& known_row(std::string_view key, const std::string& source_name) {
  if (const ConfigRow* row = find_row(key)) return *row;
  if (is_section(key)) {
    throw ConfigError::at_key(
        source_name, key, "is a section; write '" + std::string(key) + ".KEY=VALUE'; --help lists the keys");
  }
  const std::string_view nearest = nearest_key(key);
  const std::string advice =
      nearest.empty() ? "; --help lists the keys" : "; did you mean '" + std::string(nearest) + "'?";
  throw ConfigError::at_key(source_name, key, "is unknown" + advice);
}

/// Settings in the making. Remembers who set a key, for errors that show only when all is read.
class Loader {
 public:
  Loader() = default;
  explicit Loader(DaemonConfig config) : config_(std::move(config)) {}

  void set(std::string_view key, const json& value, const std::string& source_name) {
    set_value(known_row(key, source_name), config_, value, source_name);
    sources_.insert_or_assign(std::string(key), source_name);
  }

  void read_text(std::string_view text, const std::string& source_name) {
    const json document = parse_strict_json(text, source_name, kMaxConfigBytes);
    if (!document.is_object()) {
      throw ConfigError::at_position(source_name, 1, 1,
                                     "is " + describe(document) + ", must be an object of keys");
    }
    for (const auto& [key, value] : document.items()) {
      if (key == "$schema") {
        (void)string_value(value, source_name, key, kMaxSchemaNameBytes);
      } else {
        set_json(key, value, source_name);
      }
    }
  }

  /// A key of a JSON document, or a section of them.
  void set_json(const std::string& key, const json& value, const std::string& source_name) {
    if (key.find('.') != std::string::npos && find_row(key) != nullptr) {
      const ConfigRow& row = *find_row(key);
      throw ConfigError::at_key(source_name, key,
                                "is written as an object in JSON: {\"" + std::string(row.section()) +
                                    "\": {\"" + std::string(row.key()) + "\": ...}}");
    }
    if (!is_section(key)) return set(key, value, source_name);
    for (const auto& [inner, inner_value] : object_value(value, source_name, key).items())
      set(key + "." + inner, inner_value, source_name);
  }

  void read_override(std::string_view assignment) {
    static const std::string kCommandLine = "command line";
    const std::size_t equals = assignment.find('=');
    const std::string_view key = assignment.substr(0, equals);
    const ConfigRow& row = known_row(key, kCommandLine);
    if (equals == std::string_view::npos) {
      throw ConfigError::at_key(kCommandLine, key, "has no value; write '" + std::string(key) + "=VALUE'");
    }
    set(key, value_from_text(row, assignment.substr(equals + 1)), kCommandLine);
  }

  void resolve_socket() {
    if (config_.socket.empty()) set("socket", default_socket_path(), "environment");
  }

  /// Rules that hold between keys. Then the settings are complete.
  const DaemonConfig& check() const {
    if (config_.batch_tokens < config_.max_tokens) {
      throw ConfigError::at_key(source_of("batch_tokens", "max_tokens"), "batch_tokens",
                                "is " + std::to_string(config_.batch_tokens) + ", less than max_tokens (" +
                                    std::to_string(config_.max_tokens) +
                                    "): a full prompt fits no batch; raise it or lower max_tokens");
    }
    // The other half is for results on their way to readers.
    if (config_.result_cache_mib > 0 && 2 * config_.result_cache_mib >= config_.segment_mib) {
      throw ConfigError::at_key(source_of("result_cache_mib", "segment_mib"), "result_cache_mib",
                                "is " + std::to_string(config_.result_cache_mib) +
                                    ", not less than half of segment_mib (" +
                                    std::to_string(config_.segment_mib) + "); lower it or raise segment_mib");
    }
    return config_;
  }

 private:
  /// Of the first key, or of the other one when the first has its default.
  std::string source_of(std::string_view key, std::string_view other) const {
    auto found = sources_.find(key);
    if (found == sources_.end()) found = sources_.find(other);
    return found == sources_.end() ? "defaults" : found->second;
  }

  DaemonConfig config_;
  std::map<std::string, std::string, std::less<>> sources_;
};

}  // namespace

DaemonConfig parse_config(std::string_view text, const std::string& source_name) {
  Loader loader;
  loader.read_text(text, source_name);
  return loader.check();
}

DaemonConfig load_config(const std::optional<std::filesystem::path>& file,
                         std::span<const std::string> overrides) {
  Loader loader;
  if (file) loader.read_text(read_text_file(*file, kMaxConfigBytes), file->string());
  for (const std::string& assignment : overrides)
    loader.read_override(assignment);
  loader.resolve_socket();
  return loader.check();
}

DaemonConfig changed_config(const DaemonConfig& config, const json& change, const std::string& source_name) {
  Loader loader(config);
  for (const auto& [key, value] : change.items())
    loader.set_json(key, value, source_name);
  return loader.check();
}

std::string default_socket_path() {
  const char* runtime_dir = std::getenv("XDG_RUNTIME_DIR");
  // The XDG rules ask to ignore a relative path.
  if (runtime_dir != nullptr && runtime_dir[0] == '/')
    return std::string(runtime_dir) + "/gemmad/control.sock";
  return "/tmp/gemmad-" + std::to_string(::getuid()) + "/control.sock";
}

namespace {

void validate_processor(const DaemonConfig& config, const std::string& source) {
  const bool has_preset = config.processor_preset != ProcessorPreset::kNone;
  if (has_preset && config.weights == Weights::kFiles) {
    throw ConfigError::at_key(source, "processor_preset",
                              "is '" + std::string(name(config.processor_preset)) +
                                  "', which counts for random weights alone; weights is 'files'");
  }
  if (!config.embeddings_processor.empty() && has_preset) {
    throw ConfigError::at_key(source, "processor_preset",
                              "is '" + std::string(name(config.processor_preset)) +
                                  "', but embeddings_processor names '" +
                                  printable(config.embeddings_processor) + "': leave one of them out");
  }
  if (!config.projections.empty() && config.embeddings_processor.empty()) {
    throw ConfigError::at_key(source, "projections",
                              "names '" + printable(config.projections) +
                                  "', which counts for an embeddings_processor alone; there is none");
  }
}

}  // namespace

void validate_for_run(const DaemonConfig& config) {
  static const std::string kSource = "configuration";
  validate_processor(config, kSource);
  const bool has_preset = config.preset != Preset::kNone;
  if (config.weights == Weights::kFiles) {
    if (config.model.empty())
      throw ConfigError::at_key(kSource, "model", "missing; name a Hugging Face model directory");
    if (has_preset) {
      throw ConfigError::at_key(kSource, "preset",
                                "is '" + std::string(name(config.preset)) +
                                    "', which counts for random weights alone; weights is 'files'");
    }
  } else if (config.model.empty() && !has_preset) {
    throw ConfigError::at_key(kSource, "model",
                              "missing; random weights take their sizes from the config.json of a directory "
                              "named here, or from a preset");
  } else if (!config.model.empty() && has_preset) {
    throw ConfigError::at_key(kSource, "preset",
                              "is '" + std::string(name(config.preset)) + "', but model names '" +
                                  printable(config.model) + "': leave one of them out");
  }
}

void validate_change(const DaemonConfig& running, const DaemonConfig& wanted,
                     const std::string& source_name) {
  for (const ConfigRow& row : config_table()) {
    const json before = get_value(row, running);
    const json after = get_value(row, wanted);
    if (before != after && !row.changes_at_run_time) {
      throw ConfigError::at_key(source_name, row.name,
                                "changes from " + describe(before) + " to " + describe(after) +
                                    ", which a running daemon cannot do; restart it");
    }
  }
}

std::uint64_t result_cache_bytes(const DaemonConfig& config) {
  constexpr std::uint64_t kMebibyte = 1024 * 1024;
  if (config.result_cache_mib >= 0) return static_cast<std::uint64_t>(config.result_cache_mib) * kMebibyte;
  return static_cast<std::uint64_t>(config.segment_mib) * kMebibyte / 4;
}

namespace {

json& member_of(json& object, const ConfigRow& row) {
  json& owner = row.section().empty() ? object : object[std::string(row.section())];
  return owner[std::string(row.key())];
}

}  // namespace

json effective_config(const DaemonConfig& config) {
  json result = json::object();
  for (const ConfigRow& row : config_table())
    member_of(result, row) = get_value(row, config);
  return result;
}

}  // namespace gemmad
