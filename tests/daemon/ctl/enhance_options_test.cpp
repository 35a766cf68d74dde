#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config_error.h"
#include "daemon/ctl/enhance/base64.h"
#include "daemon/ctl/enhance/enhance_fields.h"
#include "daemon/ctl/options.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

namespace gemmad {
namespace {

using nlohmann::json;

CtlOptions parsed(std::vector<const char*> arguments) {
  return parse_ctl_options(arguments);
}

TEST_CASE("enhance takes its prompt as a word, wherever it stands") {
  CHECK(parsed({"enhance", "a dog"}).enhance.prompt == "a dog");
  CHECK(parsed({"enhance", "--greedy", "encode", "--seed", "3"}).enhance.prompt == "encode");
  CHECK(parsed({"enhance", "-"}).enhance.prompt == "-");
  CHECK(parsed({"enhance", ""}).enhance.prompt == "");
  CHECK_FALSE(parsed({"enhance"}).enhance.prompt.has_value());
  CHECK_THROWS_AS(parsed({"enhance", "a dog", "another"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"enhance", "--beams"}), CtlUsageError);
}

TEST_CASE("enhance takes every option, and a request has those that were given") {
  CHECK(enhance_fields(parsed({"enhance", "a"}).enhance) == json::object());
  const CtlOptions options = parsed({"enhance", "--max-new-tokens=9", "--seed", "3", "--temperature", "0.5",
                                     "--top-k", "0", "--top-p", "0.25", "--no-repeat-ngram", "5", "--greedy",
                                     "--raw", "--stream", "--name", "n", "a"});
  CHECK(enhance_fields(options.enhance) == json({{"max_new_tokens", 9},
                                                 {"seed", 3},
                                                 {"temperature", 0.5},
                                                 {"top_k", 0},
                                                 {"top_p", 0.25},
                                                 {"no_repeat_ngram", 5},
                                                 {"greedy", true},
                                                 {"clean", false},
                                                 {"stream", true}}));
  CHECK(options.name == "n");
}

TEST_CASE("values of enhance that cannot be are refused by name") {
  for (const char* wrong : {"--seed=-1", "--seed=x", "--temperature=101", "--temperature=nan", "--top-k=-1",
                            "--top-p=1.5", "--max-new-tokens=0", "--no-repeat-ngram=65"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parsed({"enhance", wrong, "a"}), CtlUsageError);
  }
}

TEST_CASE("an encode takes the options of enhance where it enhances") {
  const CtlOptions options = parsed({"encode", "--prompt", "a", "--enhance", "--seed", "3", "--stream"});
  CHECK(options.enhances);
  CHECK(options.enhance.streams);
  CHECK(options.enhance.seed == 3U);
  CHECK(parsed({"encode", "--seed", "3", "--enhance", "--prompt", "a"}).enhances);
  CHECK_FALSE(parsed({"encode", "--prompt", "a"}).enhances);
  CHECK_THROWS_AS(parsed({"encode", "--prompt", "a", "--greedy"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"encode", "--prompt", "a", "--seed", "3"}), CtlUsageError);
}

TEST_CASE("options of enhance are of no other command, but for the seed of bench") {
  CHECK(parsed({"bench", "--seed", "3"}).bench.seed == 3);
  CHECK(parsed({"--seed", "3", "bench"}).bench.seed == 3);
  CHECK_THROWS_AS(parsed({"bench", "--greedy"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"bench", "--enhance"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"tokenize", "--image", "x"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"enhance", "--enhance", "a"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"enhance", "--outputs", "features", "a"}), CtlUsageError);
}

TEST_CASE("files of enhance are in the request, whole") {
  const ScratchFolder folder;
  const std::string image = (folder.path() / "i.png").string();
  const std::string system = (folder.path() / "s.txt").string();
  write_file(image, std::string("\x89PN\0", 4));
  write_file(system, "Be short.\n");
  EnhanceCtlOptions options;
  options.image_file = image;
  options.system_prompt_file = system;
  const json fields = enhance_fields(options);
  CHECK(fields["image"] == json({{"file", "iVBOAA=="}}));
  CHECK(fields["system_prompt"] == "Be short.\n");
  options.image_file = (folder.path() / "none.png").string();
  CHECK_THROWS_AS(enhance_fields(options), ConfigError);
}

TEST_CASE("base64 is that of RFC 4648") {
  const std::vector<std::pair<std::string, std::string>> vectors = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {"\xff\xfe\xfb", "//77"}};
  for (const auto& [bytes, text] : vectors)
    CHECK(to_base64(bytes) == text);
}

TEST_CASE("the help tells of every option of enhance") {
  const std::string help = ctl_help_text();
  for (const char* option :
       {"enhance [OPTIONS] PROMPT", "--image", "--system-prompt", "--stream", "--raw", "--max-new-tokens",
        "--greedy", "--seed", "--temperature", "--top-k", "--top-p", "--no-repeat-ngram", "--enhance"})
    CHECK(help.find(option) != std::string::npos);
}

}  // namespace
}  // namespace gemmad
