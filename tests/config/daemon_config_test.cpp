#include "config/daemon_config.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "config/config_table.h"
#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

std::string refusal(const std::string& text) {
  return error_of([&] { parse_config(text, "f.json"); });
}

DaemonConfig with_overrides(const std::vector<std::string>& overrides) {
  return load_config(std::nullopt, overrides);
}

std::string override_refusal(const std::string& assignment) {
  return error_of([&] { with_overrides({assignment}); });
}

std::filesystem::path scratch_file(const std::string& name, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(GEMMAD_TEST_SCRATCH) / name;
  std::ofstream(file) << text;
  return file;
}

/// Sets XDG_RUNTIME_DIR (unsets it for nullptr) and puts the former value back at the end.
class RuntimeDir {
 public:
  explicit RuntimeDir(const char* value) {
    if (const char* former = std::getenv(kName)) former_ = former;
    set(value);
  }
  ~RuntimeDir() { set(former_ ? former_->c_str() : nullptr); }
  RuntimeDir(const RuntimeDir&) = delete;
  RuntimeDir& operator=(const RuntimeDir&) = delete;

 private:
  static constexpr const char* kName = "XDG_RUNTIME_DIR";
  static void set(const char* value) { value == nullptr ? ::unsetenv(kName) : ::setenv(kName, value, 1); }
  std::optional<std::string> former_;
};

}  // namespace

TEST_CASE("A config file sets what it names and leaves the rest") {
  const DaemonConfig config =
      parse_config(R"({"model": "/m", "device": "cpu", "segment_mib": 7, "log_level": "warn"})", "f.json");
  DaemonConfig expected;
  expected.model = "/m";
  expected.device = DeviceChoice::kCpu;
  expected.segment_mib = 7;
  expected.log_level = LogLevel::kWarn;
  CHECK(config == expected);
}

TEST_CASE("An unknown key is refused, with the nearest known one") {
  CHECK(refusal(R"({"segment_mb": 1})") ==
        "f.json: key 'segment_mb': is unknown; did you mean 'segment_mib'?");
  CHECK(refusal(R"({"temperature": 1})") == "f.json: key 'temperature': is unknown; --help lists the keys");
}

TEST_CASE("A section is an object of its keys in a file and has a dot on the command line") {
  const DaemonConfig config = parse_config(
      R"({"enhance": {"slots": 2, "system_prompt": "/s.txt"}, "enhancer": {"model": "/e"}})", "f.json");
  DaemonConfig expected;
  expected.enhance_slots = 2;
  expected.enhance_system_prompt = "/s.txt";
  expected.enhancer_model = "/e";
  CHECK(config == expected);
  CHECK(parse_config(R"({"enhance": {}})", "f.json") == DaemonConfig{});
  CHECK(with_overrides({"enhance.slots=2", "enhancer.model=/e=1"}).enhance_slots == 2);
  CHECK(with_overrides({"enhance.rank=-1"}).enhance_rank == -1);
}

TEST_CASE("A section that is none, or a key that is not of it, is refused with what was meant") {
  CHECK(refusal(R"({"enhance": {"slot": 1}})") ==
        "f.json: key 'enhance.slot': is unknown; did you mean 'enhance.slots'?");
  CHECK(refusal(R"({"enhance": 4})") == "f.json: key 'enhance': is 4, must be an object");
  CHECK(refusal(R"({"enhance": {"slots": 0}})") ==
        "f.json: key 'enhance.slots': is 0, must be an integer from 1 to 16 prompts");
  CHECK(refusal(R"({"enhance": {"slots": {"x": 1}}})") ==
        "f.json: key 'enhance.slots': is an object, must be an integer from 1 to 16 prompts");
  CHECK(refusal(R"({"enhance.slots": 4})") ==
        R"(f.json: key 'enhance.slots': is written as an object in JSON: {"enhance": {"slots": ...}})");
  CHECK(contains(refusal(R"({"slots": 4})"), "f.json: key 'slots': is unknown"));
  CHECK(contains(refusal(R"({"enhance": {"slots": 1, "slots": 1}})"), "is repeated"));
  CHECK(override_refusal("enhance=4") ==
        "command line: key 'enhance': is a section; write 'enhance.KEY=VALUE'; --help lists the keys");
  CHECK(contains(override_refusal("enhance.slot=4"), "did you mean 'enhance.slots'?"));
}

TEST_CASE("A repeated key is refused even when both values agree") {
  CHECK(refusal(R"({"model": "/m", "model": "/m"})") == "f.json: key 'model': is repeated");
}

TEST_CASE("A config that is no object is refused") {
  const std::string text = GENERATE(as<std::string>{}, "[]", "null", "1", "\"model\"", "true");
  CHECK(contains(refusal(text), "f.json: line 1 column 1: is "));
  CHECK(contains(refusal(text), ", must be an object of keys"));
}

TEST_CASE("A config without bytes, too long or too deep is refused") {
  CHECK(refusal("") == "f.json: line 1 column 1: is empty, must be JSON");
  CHECK(contains(refusal(std::string(kMaxConfigBytes - 1, ' ') + "{}"), "at most 1048576 are read"));
  CHECK(contains(refusal("{\"model\":" + std::string(100'000, '[')), "nested deeper than 64 levels"));
}

TEST_CASE("The schema's name is allowed for editors and must be a string") {
  CHECK(parse_config(R"({"$schema": "gemmad.schema.json"})", "f.json") == DaemonConfig{});
  CHECK(refusal(R"({"$schema": 1})") == "f.json: key '$schema': is 1, must be a string");
  CHECK(contains(override_refusal("$schema=x"), "is unknown"));
}

TEST_CASE("A batch budget below the longest prompt is refused") {
  const std::string reason = "key 'batch_tokens': is 100, less than max_tokens (1024)";
  CHECK(contains(refusal(R"({"batch_tokens": 100})"), "f.json: " + reason));
  CHECK(refusal(R"({"batch_tokens": 100, "max_tokens": 100})").empty());
  CHECK(contains(override_refusal("batch_tokens=100"), "command line: " + reason));
}

TEST_CASE("A result cache of half the segment or more is refused") {
  const std::string reason = "key 'result_cache_mib': is 50, not less than half of segment_mib (100)";
  CHECK(contains(refusal(R"({"result_cache_mib": 50, "segment_mib": 100})"), "f.json: " + reason));
  CHECK(refusal(R"({"result_cache_mib": 50, "segment_mib": 101})").empty());
  CHECK(refusal(R"({"result_cache_mib": 49, "segment_mib": 100})").empty());
  CHECK(contains(override_refusal("result_cache_mib=512"), "command line: key 'result_cache_mib': is 512"));
  CHECK(override_refusal("result_cache_mib=511").empty());
}

TEST_CASE("A segment of any size is fine without a result cache") {
  CHECK(refusal(R"({"segment_mib": 1})").empty());
  CHECK(contains(refusal(R"({"segment_mib": 1, "result_cache_mib": 1})"), "half of segment_mib (1)"));
}

TEST_CASE("A rule between keys is checked after the overrides and blames who set the key") {
  const auto file = scratch_file("low_budget.json", R"({"batch_tokens": 100})");
  const std::vector<std::string> lower{"max_tokens=50"};
  CHECK(load_config(file, lower).batch_tokens == 100);
  CHECK(contains(error_of([&] { load_config(file, {}); }), file.string() + ": key 'batch_tokens'"));
}

TEST_CASE("Overrides are read by the key's type") {
  const DaemonConfig config =
      with_overrides({"model=/m=1 x", "segment_mib=12", "log_level=error", "drain_ms=0", "socket=/tmp/s",
                      "device=cpu", "mode=sharded", "encoder_ranks=2,0"});
  CHECK(config.model == "/m=1 x");
  CHECK(config.segment_mib == 12);
  CHECK(config.log_level == LogLevel::kError);
  CHECK(config.drain_ms == 0);
  CHECK(config.socket == "/tmp/s");
  CHECK(config.device == DeviceChoice::kCpu);
  CHECK(config.mode == Mode::kSharded);
  CHECK(config.encoder_ranks == std::vector<std::int64_t>{2, 0});
  CHECK(with_overrides({"encoder_ranks=2", "encoder_ranks="}).encoder_ranks.empty());
}

TEST_CASE("A path of digits stays a path") {
  CHECK(with_overrides({"model=123"}).model == "123");
}

TEST_CASE("Overrides win over the file, and later ones over earlier ones") {
  const auto file = scratch_file("overridden.json", R"({"segment_mib": 5, "max_prompts": 6})");
  const std::vector<std::string> overrides{"segment_mib=7", "segment_mib=8"};
  const DaemonConfig config = load_config(file, overrides);
  CHECK(config.segment_mib == 8);
  CHECK(config.max_prompts == 6);
}

TEST_CASE("A bad override names the command line") {
  CHECK(contains(override_refusal("segment_mib=0"),
                 "command line: key 'segment_mib': is 0, must be an integer from 1 to 1048576 MiB"));
  CHECK(contains(override_refusal("segment_mib="),
                 "command line: key 'segment_mib': is '', must be an integer"));
  CHECK(contains(override_refusal("segment_mib=1.0"), "is '1.0', must be an integer"));
  CHECK(contains(override_refusal("segment_mib= 1"), "is ' 1', must be an integer"));
  CHECK(contains(override_refusal("segment_mib=1x"), "is '1x', must be an integer"));
  CHECK(contains(override_refusal("segment_mib=99999999999999999999"), "is '99999999999999999999', must be"));
  CHECK(contains(override_refusal("device=gpu"),
                 "command line: key 'device': is 'gpu', must be 'auto', 'cpu'"));
  CHECK(contains(override_refusal("encoder_ranks=0,x"),
                 "command line: key 'encoder_ranks': is 'x', must be an integer"));
  CHECK(contains(override_refusal("encoder_ranks=0,"), "is '', must be an integer"));
  CHECK(override_refusal("encoder_ranks=4,4") == "command line: key 'encoder_ranks': names 4 twice");
  CHECK(contains(override_refusal("model=\xff"), "must be UTF-8"));
  CHECK(contains(override_refusal("segment_mb=1"), "did you mean 'segment_mib'?"));
  CHECK(override_refusal("model") == "command line: key 'model': has no value; write 'model=VALUE'");
  CHECK(contains(override_refusal("=x"), "command line: key '': is unknown"));
  CHECK(contains(override_refusal(""), "command line: key '': is unknown"));
}

TEST_CASE("load_config names a file that is not there") {
  CHECK(contains(error_of([] { load_config("/nonexistent/gemmad.json", {}); }),
                 "/nonexistent/gemmad.json: cannot be opened"));
}

TEST_CASE("The default socket is in the runtime directory") {
  const RuntimeDir dir("/run/user/7");
  CHECK(default_socket_path() == "/run/user/7/gemmad/control.sock");
  CHECK(with_overrides({}).socket == "/run/user/7/gemmad/control.sock");
  CHECK(with_overrides({"socket=/tmp/mine"}).socket == "/tmp/mine");
}

TEST_CASE("Without a usable runtime directory the default socket is in a folder of the user's own") {
  const char* value = GENERATE(as<const char*>{}, nullptr, "", "relative/path");
  const RuntimeDir dir(value);
  CHECK(default_socket_path() == "/tmp/gemmad-" + std::to_string(::getuid()) + "/control.sock");
}

TEST_CASE("A runtime directory too long for a socket is refused by key") {
  const std::int64_t limit = std::get<PathField>(find_row("socket")->field).max_bytes;
  const std::string path = '/' + std::string(90, 'r');
  const RuntimeDir dir(path.c_str());
  CHECK(error_of([] { with_overrides({}); }) ==
        "environment: key 'socket': has 111 bytes, at most " + std::to_string(limit) + " are allowed");
}

TEST_CASE("What is read out can be set back") {
  const DaemonConfig loaded = with_overrides(
      {"model=/m", "segment_mib=77", "max_tokens=512", "batch_tokens=600", "log_level=debug", "device=cpu",
       "heartbeat_ms=50", "mode=adaptive", "segments=per_node", "encoder_ranks=3,1", "enhance.slots=7",
       "enhance.system_prompt=/s", "enhancer.model=/e"});
  CHECK(parse_config(effective_config(loaded).dump(), "printed") == loaded);

  std::vector<std::string> overrides;
  const json printed = effective_config(loaded);
  for (const ConfigRow& row : config_table()) {
    const json& value =
        (row.section().empty() ? printed : printed.at(std::string(row.section()))).at(std::string(row.key()));
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_array()) text = text.substr(1, text.size() - 2);
    overrides.push_back(std::string(row.name) + "=" + text);
  }
  CHECK(with_overrides(overrides) == loaded);
}

TEST_CASE("validate_for_run asks for a model") {
  DaemonConfig config;
  CHECK(error_of([&] { validate_for_run(config); }) ==
        "configuration: key 'model': missing; name a Hugging Face model directory");
  config.model = "/m";
  CHECK_NOTHROW(validate_for_run(config));
}

TEST_CASE("validate_for_run asks random weights for a model or a preset, and not for both") {
  const auto said = [](const std::vector<std::string>& overrides) {
    return error_of([&] { validate_for_run(with_overrides(overrides)); });
  };
  CHECK(said({"weights=random", "model=/m"}).empty());
  CHECK(said({"weights=random", "preset=gemma-3-270m"}).empty());
  CHECK(said({"weights=random"}) ==
        "configuration: key 'model': missing; random weights take their sizes from the config.json of a "
        "directory named here, or from a preset");
  CHECK(said({"weights=random", "preset=gemma-3-1b", "model=/m"}) ==
        "configuration: key 'preset': is 'gemma-3-1b', but model names '/m': leave one of them out");
  CHECK(said({"preset=gemma-3-1b", "model=/m"}) ==
        "configuration: key 'preset': is 'gemma-3-1b', which counts for random weights alone; weights is "
        "'files'");
  CHECK(contains(said({"preset=gemma-3-1b"}), "key 'model': missing"));
}

TEST_CASE("validate_change lets through just the keys that change at run time") {
  for (const ConfigRow& row : config_table()) {
    CAPTURE(row.name);
    const auto* field = std::get_if<IntegerField>(&row.field);
    if (field == nullptr) continue;
    DaemonConfig wanted;
    set_value(row, wanted, field->max == get_value(row, wanted) ? field->min : field->max, "f.json");
    const std::string error = error_of([&] { validate_change(DaemonConfig{}, wanted, "f.json"); });
    CHECK(error.empty() == row.changes_at_run_time);
    if (!error.empty()) CHECK(contains(error, "f.json: key '" + std::string(row.name) + "': changes from "));
  }
  CHECK_NOTHROW(validate_change(DaemonConfig{}, DaemonConfig{}, "f.json"));
}

TEST_CASE("validate_change lets mode and encoders change, and no segment or copy of the weights") {
  const auto change_of = [](const char* assignment) {
    const DaemonConfig running = with_overrides({});
    return error_of([&] { validate_change(running, with_overrides({assignment}), "f.json"); });
  };
  CHECK(change_of("mode=sharded").empty());
  CHECK(change_of("strategy=layer").empty());
  CHECK(change_of("encoder_ranks=0,1").empty());
  CHECK(change_of("result_cache_mib=100").empty());
  CHECK(change_of("enhance.idle_ms=5").empty());
  CHECK(contains(change_of("enhance.slots=5"), "f.json: key 'enhance.slots': changes from 4 to 5"));
  CHECK(contains(change_of("segments=per_node"), "f.json: key 'segments': changes from "));
  CHECK(contains(change_of("weights_cache=none"), "f.json: key 'weights_cache': changes from "));
  CHECK(contains(change_of("weights=random"), "f.json: key 'weights': changes from "));
  CHECK(contains(change_of("weights_seed=2"), "f.json: key 'weights_seed': changes from "));
  CHECK(contains(change_of("preset=gemma-3-4b"), "f.json: key 'preset': changes from "));
}

TEST_CASE("changed_config sets what the change names and leaves the rest") {
  DaemonConfig config = with_overrides({"model=/m", "segment_mib=77"});
  const DaemonConfig changed =
      changed_config(config, json{{"mode", "sharded"}, {"encoder_ranks", {2, 1}}}, "request");
  config.mode = Mode::kSharded;
  config.encoder_ranks = {2, 1};
  CHECK(changed == config);
}

TEST_CASE("changed_config sets keys of a section") {
  DaemonConfig config = with_overrides({"enhance.queue=9"});
  const DaemonConfig changed = changed_config(config, json{{"enhance", {{"idle_ms", 7}}}}, "request");
  config.enhance_idle_ms = 7;
  CHECK(changed == config);
  CHECK(changed_config(DaemonConfig{}, effective_config(config), "order") == config);
}

TEST_CASE("changed_config refuses by key, and checks the whole") {
  const auto change = [](const json& object) {
    return error_of([&] { changed_config(with_overrides({}), object, "request"); });
  };
  CHECK(contains(change({{"mode", "fast"}}), "request: key 'mode': is 'fast'"));
  CHECK(contains(change({{"modes", "sharded"}}), "request: key 'modes': is unknown"));
  CHECK(
      contains(change({{"batch_tokens", 100}}), "request: key 'batch_tokens': is 100, less than max_tokens"));
}

TEST_CASE("The help has one line a key with default, bounds and meaning") {
  std::istringstream help(config_help());
  std::string line;
  std::getline(help, line);
  CHECK(contains(line, "KEY"));
  for (const ConfigRow& row : config_table()) {
    REQUIRE(std::getline(help, line));
    CAPTURE(line);
    CHECK(line.starts_with(std::string(row.name) + " "));
    CHECK(line.ends_with(row.help));
    if (row.name == "segment_mib") {
      CHECK(contains(line, "integer"));
      CHECK(contains(line, " 1024 "));
      CHECK(contains(line, "1..1048576 MiB"));
    }
    if (row.name == "encoder_ranks") {
      CHECK(contains(line, " list "));
      CHECK(contains(line, "each 0..9999"));
    }
    if (row.name == "log_level") CHECK(contains(line, "trace|debug|info|warn|error"));
  }
  CHECK_FALSE(std::getline(help, line));
}
