#include "daemon/command_line.h"

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

CommandLine parse(std::vector<const char*> arguments) {
  return parse_command_line(arguments);
}
CtlOptions parse_ctl(std::vector<const char*> arguments) {
  return parse_ctl_options(arguments);
}

TEST_CASE("gemmad takes settings in order, with or without an equals sign") {
  const CommandLine line =
      parse({"--config", "f.json", "--model=/m", "--set", "segment_mib=7", "--socket", "/s"});
  CHECK(line.action == CommandLine::Action::kRun);
  CHECK(line.config_file == "f.json");
  CHECK(line.overrides == std::vector<std::string>{"model=/m", "segment_mib=7", "socket=/s"});
}

TEST_CASE("gemmad refuses arguments that it does not know or that lack a value") {
  CHECK_THROWS_AS(parse({"--colour"}), UsageError);
  CHECK_THROWS_AS(parse({"model"}), UsageError);
  CHECK_THROWS_AS(parse({"--config"}), UsageError);
}

TEST_CASE("gemmad's help names every option and every setting") {
  for (const char* word :
       {"--config", "--model", "--socket", "--set", "--check-config", "--print-config", "--print-schema",
        "--version", "segment_mib", "result_ttl_ms", "encode", "shutdown"}) {
    CAPTURE(word);
    CHECK(help_text().find(word) != std::string::npos);
  }
}

TEST_CASE("gemmactl takes encode's options") {
  const CtlOptions options = parse_ctl({"--socket", "/s", "encode", "--prompt", "a", "--prompt", "b",
                                        "--outputs", "hidden_states,last_hidden_state", "--layers", "0,8",
                                        "--save", "o.safetensors", "--json", "--wait-ready", "2.5"});
  CHECK(options.socket == "/s");
  CHECK(options.command == "encode");
  CHECK(options.prompts == std::vector<std::string>{"a", "b"});
  CHECK(options.outputs == std::vector<std::string>{"hidden_states", "last_hidden_state"});
  CHECK(options.layers == std::vector<std::int64_t>{0, 8});
  CHECK(options.save_file == "o.safetensors");
  CHECK(options.json);
  CHECK(options.wait_ready_s == 2.5);
}

TEST_CASE("gemmactl takes a prompt that looks like an option or is empty") {
  CHECK(parse_ctl({"encode", "--prompt", "--json"}).prompts == std::vector<std::string>{"--json"});
  CHECK(parse_ctl({"encode", "--prompt", ""}).prompts == std::vector<std::string>{""});
  CHECK(parse_ctl({"encode", "--prompt=a=b"}).prompts == std::vector<std::string>{"a=b"});
}

TEST_CASE("gemmactl refuses what it does not understand") {
  CHECK_THROWS_AS(parse_ctl({}), CtlUsageError);
  CHECK_THROWS_AS(parse_ctl({"decode"}), CtlUsageError);
  CHECK_THROWS_AS(parse_ctl({"encode", "health"}), CtlUsageError);
  CHECK_THROWS_AS(parse_ctl({"encode", "--layers", "0,x"}), CtlUsageError);
  CHECK_THROWS_AS(parse_ctl({"encode", "--wait-ready", "nan"}), CtlUsageError);
  CHECK_THROWS_AS(parse_ctl({"encode", "--save"}), CtlUsageError);
}

}  // namespace
}  // namespace gemmad
