#include "config/config_table.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

/// The error of a file that sets only `key`.
std::string refusal(std::string_view key, const json& value) {
  const std::size_t dot = key.find('.');
  json file = {{std::string(key.substr(dot == std::string_view::npos ? 0 : dot + 1)), value}};
  if (dot != std::string_view::npos) file = {{std::string(key.substr(0, dot)), file}};
  return error_of([&] { parse_config(file.dump(), "f.json"); });
}

json read_back(std::string_view key, const json& value) {
  const ConfigRow& row = *find_row(key);
  DaemonConfig config;
  set_value(row, config, value, "f.json");
  return get_value(row, config);
}

}  // namespace

TEST_CASE("The table has the documented default of every key") {
  const json expected = {{"model", ""},
                         {"weights", "files"},
                         {"weights_seed", 1},
                         {"preset", "none"},
                         {"embeddings_processor", ""},
                         {"projections", ""},
                         {"processor_preset", "none"},
                         {"mode", "batch_parallel"},
                         {"strategy", "tensor"},
                         {"ranks_per_replica", 0},
                         {"encoder_ranks", json::array()},
                         {"weights_cache", "node"},
                         {"device", "auto"},
                         {"socket", ""},
                         {"segments", "per_rank"},
                         {"segment_mib", 1024},
                         {"result_ttl_ms", 60000},
                         {"result_cache_mib", -1},
                         {"deadline_ms", 60000},
                         {"max_tokens", 1024},
                         {"batch_tokens", 8192},
                         {"max_prompts", 256},
                         {"queue_length", 256},
                         {"max_clients", 512},
                         {"max_readers", 256},
                         {"max_line_bytes", 8388608},
                         {"max_unsent_bytes", 67108864},
                         {"client_stall_ms", 60000},
                         {"drain_ms", 30000},
                         {"idle_sleep_ms", 0},
                         {"enhancer", {{"model", ""}}},
                         {"enhance",
                          {{"rank", -1},
                           {"slots", 4},
                           {"context", 4096},
                           {"queue", 64},
                           {"idle_ms", 60000},
                           {"system_prompt", ""},
                           {"system_prompt_image", ""}}},
                         {"heartbeat_ms", 1000},
                         {"collective_timeout_ms", 60000},
                         {"compute_timeout_ms", 600000},
                         {"compute_threads", 0},
                         {"log_level", "info"}};
  CHECK(effective_config(parse_config("{}", "f.json")) == expected);
}

TEST_CASE("The table has each key once, with a help text of one line") {
  std::set<std::string_view> names;
  for (const ConfigRow& row : config_table()) {
    CAPTURE(row.name);
    CHECK(names.insert(row.name).second);
    CHECK_FALSE(row.help.empty());
    CHECK(row.help.find('\n') == std::string_view::npos);
    CHECK(find_row(row.name) == &row);
  }
  CHECK(find_row("no_such_key") == nullptr);
}

TEST_CASE("Every row stores into its own member") {
  for (const ConfigRow& row : config_table()) {
    DaemonConfig config;
    json other;
    if (const auto* integer = std::get_if<IntegerField>(&row.field)) {
      other = integer->max;
    } else if (const auto* choice = std::get_if<EnumField>(&row.field)) {
      other = choice->names.back() == get_value(row, config).get<std::string>() ? choice->names.front()
                                                                                : choice->names.back();
    } else if (std::holds_alternative<IntegerListField>(row.field)) {
      other = json::array({3, 1});
    } else {
      other = "/x";
    }
    set_value(row, config, other, "f.json");
    for (const ConfigRow& each : config_table()) {
      CAPTURE(row.name, each.name);
      const bool changed = get_value(each, config) != get_value(each, DaemonConfig{});
      CHECK((!changed || &each == &row));
      if (&each == &row) CHECK(get_value(each, config) == other);
    }
  }
}

TEST_CASE("Every integer key takes its bounds and nothing beyond") {
  for (const ConfigRow& row : config_table()) {
    const auto* field = std::get_if<IntegerField>(&row.field);
    if (field == nullptr) continue;
    CAPTURE(row.name);
    CHECK(read_back(row.name, field->min) == field->min);
    CHECK(read_back(row.name, field->max) == field->max);
    CHECK(get_value(row, DaemonConfig{}) >= field->min);
    CHECK(get_value(row, DaemonConfig{}) <= field->max);
    std::string reason =
        ", must be an integer from " + std::to_string(field->min) + " to " + std::to_string(field->max);
    if (!row.unit.empty()) reason.append(" ").append(row.unit);
    const std::string place = "f.json: key '" + std::string(row.name) + "': is ";
    CHECK(refusal(row.name, field->min - 1) == place + std::to_string(field->min - 1) + reason);
    CHECK(refusal(row.name, field->max + 1) == place + std::to_string(field->max + 1) + reason);
    CHECK(refusal(row.name, std::numeric_limits<std::int64_t>::min()) ==
          place + "-9223372036854775808" + reason);
    CHECK(refusal(row.name, std::numeric_limits<std::uint64_t>::max()) ==
          place + "18446744073709551615" + reason);
    CHECK(refusal(row.name, 1e20) == place + "1e+20" + reason);
    CHECK(refusal(row.name, 1024.0) == place + "1024.0" + reason);
    CHECK(refusal(row.name, "1024") == place + "'1024'" + reason);
    CHECK(refusal(row.name, nullptr) == place + "null" + reason);
    CHECK(refusal(row.name, true) == place + "true" + reason);
    CHECK(refusal(row.name, json::array({1})) == place + "an array" + reason);
  }
}

TEST_CASE("Every enum key takes its names and nothing else") {
  for (const ConfigRow& row : config_table()) {
    const auto* field = std::get_if<EnumField>(&row.field);
    if (field == nullptr) continue;
    CAPTURE(row.name);
    for (const std::string_view choice : field->names)
      CHECK(read_back(row.name, choice) == json(choice));
    CHECK(contains(refusal(row.name, "Auto"),
                   "f.json: key '" + std::string(row.name) + "': is 'Auto', must be '"));
    CHECK(contains(refusal(row.name, ""), "is '', must be '"));
    CHECK(contains(refusal(row.name, 0), "is 0, must be '"));
    CHECK(contains(refusal(row.name, json::object()), "is an object, must be '"));
  }
}

TEST_CASE("An enum error lists the names") {
  CHECK(refusal("device", "gpu") == "f.json: key 'device': is 'gpu', must be 'auto', 'cpu', 'cuda'");
}

TEST_CASE("Every list key takes different integers within its bounds, in their order, and nothing else") {
  std::size_t num_lists = 0;
  for (const ConfigRow& row : config_table()) {
    const auto* field = std::get_if<IntegerListField>(&row.field);
    if (field == nullptr) continue;
    ++num_lists;
    CAPTURE(row.name);
    const json ends = json::array({field->max, field->min});
    CHECK(read_back(row.name, json::array()) == json::array());
    CHECK(read_back(row.name, ends) == ends);
    const std::string place = "f.json: key '" + std::string(row.name) + "': ";
    CHECK(refusal(row.name, json::array({2, 1, 2})) == place + "names 2 twice");
    const std::string below = std::to_string(field->min - 1);
    CHECK(contains(refusal(row.name, json::array({field->min - 1})), place + "is " + below + ", must be"));
    CHECK(contains(refusal(row.name, json::array({field->max + 1})), ", must be an integer from "));
    CHECK(contains(refusal(row.name, json::array({"1"})), "is '1', must be an integer"));
    CHECK(contains(refusal(row.name, json::array({1.0})), "is 1.0, must be an integer"));
    CHECK(contains(refusal(row.name, 1), place));
    CHECK(contains(refusal(row.name, nullptr), place));
    json too_many = json::array();
    for (std::int64_t i = 0; i <= field->max_items; ++i)
      too_many.push_back(field->min + i);
    CHECK(contains(refusal(row.name, too_many), std::to_string(field->max_items)));
  }
  CHECK(num_lists == 1);
}

TEST_CASE("A list on the command line is its numbers with commas between, brackets around them or not") {
  const auto read = [](std::string_view text) { return value_from_text(*find_row("encoder_ranks"), text); };
  CHECK(read("") == json::array());
  CHECK(read("7") == json::array({7}));
  CHECK(read("0,3,12") == json::array({0, 3, 12}));
  CHECK(read("[]") == json::array());
  CHECK(read("[0,3]") == json::array({0, 3}));
  CHECK(read("[0") == json::array({"[0"}));
  CHECK(read("[") == json::array({"["}));
  // What is no number is left for set_value to refuse.
  CHECK(read("0,x") == json::array({0, "x"}));
  CHECK(read("0, 1") == json::array({0, " 1"}));
  CHECK(read("0,,1") == json::array({0, "", 1}));
  CHECK(read("0,") == json::array({0, ""}));
  CHECK(read(",") == json::array({"", ""}));
}

TEST_CASE("Every path key takes its longest path and none longer") {
  for (const ConfigRow& row : config_table()) {
    const auto* field = std::get_if<PathField>(&row.field);
    if (field == nullptr) continue;
    CAPTURE(row.name);
    const std::string longest(static_cast<std::size_t>(field->max_bytes), 'p');
    CHECK(read_back(row.name, longest) == longest);
    CHECK(contains(refusal(row.name, longest + "p"), "at most " + std::to_string(field->max_bytes)));
    CHECK(contains(refusal(row.name, 7), "is 7, must be a string"));
    CHECK(contains(refusal(row.name, std::string("a\0b", 3)), "must be UTF-8 without NUL"));
    CHECK(
        contains(error_of([&] {
                   DaemonConfig config;
                   set_value(row, config, std::string("\xff"), "command line");
                 }),
                 "command line: key '" + std::string(row.name) + "': is '\\xff', must be UTF-8 without NUL"));
  }
}

TEST_CASE("A refused value leaves the settings as they were") {
  for (const ConfigRow& row : config_table()) {
    DaemonConfig config;
    CHECK_THROWS_AS(set_value(row, config, -7, "f.json"), ConfigError);
    CHECK(config == DaemonConfig{});
  }
}

TEST_CASE("A row in a section has the section's name and its own") {
  const ConfigRow& row = *find_row("enhance.slots");
  CHECK(row.section() == "enhance");
  CHECK(row.key() == "slots");
  CHECK(find_row("model")->section().empty());
  CHECK(find_row("model")->key() == "model");
  CHECK(find_row("slots") == nullptr);
  CHECK(is_section("enhance"));
  CHECK(is_section("enhancer"));
  CHECK_FALSE(is_section("model"));
  CHECK_FALSE(is_section(""));
}

TEST_CASE("nearest_key finds what was meant") {
  CHECK(nearest_key("segment_mb") == "segment_mib");
  CHECK(nearest_key("result_ttl") == "result_ttl_ms");
  CHECK(nearest_key("modell") == "model");
  CHECK(nearest_key("enhance.slot") == "enhance.slots");
  CHECK(nearest_key("MODE").empty());
  CHECK(nearest_key("temperature").empty());
  CHECK(nearest_key("").empty());
  CHECK(nearest_key(std::string(100'000, 'm')).empty());
}

TEST_CASE("name gives every enumerator the name used in the file") {
  CHECK(name(Mode::kSharded) == "sharded");
  CHECK(name(Mode::kBatchParallel) == "batch_parallel");
  CHECK(name(Mode::kAdaptive) == "adaptive");
  CHECK(name(Strategy::kTensor) == "tensor");
  CHECK(name(Strategy::kLayer) == "layer");
  CHECK(name(Segments::kPerRank) == "per_rank");
  CHECK(name(Segments::kPerNode) == "per_node");
  CHECK(name(Weights::kFiles) == "files");
  CHECK(name(Weights::kRandom) == "random");
  CHECK(name(Preset::kNone) == "none");
  CHECK(name(Preset::kGemma3_270m) == "gemma-3-270m");
  CHECK(name(Preset::kGemma3_1b) == "gemma-3-1b");
  CHECK(name(Preset::kGemma3_4b) == "gemma-3-4b");
  CHECK(name(Preset::kGemma3_12b) == "gemma-3-12b");
  CHECK(name(Preset::kGemma3_27b) == "gemma-3-27b");
  CHECK(name(WeightsCache::kNode) == "node");
  CHECK(name(WeightsCache::kNone) == "none");
  CHECK(name(DeviceChoice::kAuto) == "auto");
  CHECK(name(DeviceChoice::kCpu) == "cpu");
  CHECK(name(LogLevel::kTrace) == "trace");
  CHECK(name(LogLevel::kDebug) == "debug");
  CHECK(name(LogLevel::kInfo) == "info");
  CHECK(name(LogLevel::kWarn) == "warn");
  CHECK(name(LogLevel::kError) == "error");
}
