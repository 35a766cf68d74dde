// The typed table of the daemon's settings. Parsing, printing, help and schema are all derived from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/daemon_config.h"

namespace gemmad {

/// A file system path, not checked to exist. At most `max_bytes`, without NUL.
struct PathField {
  std::string DaemonConfig::*member;
  std::int64_t max_bytes;
};

/// A whole number in [min, max].
struct IntegerField {
  std::int64_t DaemonConfig::*member;
  std::int64_t min;
  std::int64_t max;
};

/// Different whole numbers in [min, max], at most `max_items`.
struct IntegerListField {
  std::vector<std::int64_t> DaemonConfig::*member;
  std::int64_t min;
  std::int64_t max;
  std::int64_t max_items;
};

/// One of `names`; a value is its index there.
struct EnumField {
  std::span<const std::string_view> names;
  std::size_t (*get)(const DaemonConfig&);
  void (*set)(DaemonConfig&, std::size_t);
};

/// One key. Its default is what DaemonConfig{} holds. The name of a key in a section is "SECTION.KEY", as the
/// command line has it; in JSON a section is an object of its keys.
struct ConfigRow {
  std::string_view name;
  std::variant<PathField, IntegerField, IntegerListField, EnumField> field;
  std::string_view unit;  // "ms", "MiB", "tokens"; empty when there is none
  bool changes_at_run_time;
  std::string_view help;  // one line

  /// "" where the key is in none.
  constexpr std::string_view section() const {
    const std::size_t dot = name.find('.');
    return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  }
  /// The name within its section.
  constexpr std::string_view key() const {
    const std::size_t dot = name.find('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
  }
};

/// All keys, in the order of the help text. Lives as long as the program.
std::span<const ConfigRow> config_table();

/// The row named `key`, or nullptr.
const ConfigRow* find_row(std::string_view key);

/// Whether there are rows of this section.
bool is_section(std::string_view key);

/// The row's name nearest to `key` by edit distance, or "" when none is near enough to be meant.
std::string_view nearest_key(std::string_view key);

/// The row's value in `config`, as the JSON that set_value takes.
nlohmann::json get_value(const ConfigRow& row, const DaemonConfig& config);

/// Checks type and bounds and stores. Throws ConfigError naming `source_name` and the row; `config` is then
/// unchanged.
void set_value(const ConfigRow& row, DaemonConfig& config, const nlohmann::json& value,
               const std::string& source_name);

/// The JSON value that `text` from a command line stands for, by the row's type: digits for an integer,
/// digits and commas for a list, the text itself otherwise. What cannot be one is returned as a string, for
/// set_value to refuse.
nlohmann::json value_from_text(const ConfigRow& row, std::string_view text);

}  // namespace gemmad
