#include "config/gemma_pairing.h"

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;

namespace {

using Text = std::optional<std::string>;

/// "fits", what is warned of, or what is wrong.
std::string verdict(const Text& model_version, const Text& needed, const std::string& model_type,
                    const Text& gemma_version) {
  try {
    return check_pairing({model_version, needed}, model_type, gemma_version, "ltx").value_or("fits");
  } catch (const ConfigError& error) {
    return std::string("refused: ") + error.what();
  }
}

}  // namespace

TEST_CASE("A checkpoint that names its Gemma takes that one only") {
  CHECK(verdict("2.5.0", "g-v1", "gemma4_unified", "g-v1") == "fits");
  CHECK(
      verdict("2.5.0", "g-v1", "gemma4_unified", "g-v2") ==
      "refused: ltx: was trained with Gemma 'g-v1', but the Gemma here is version 'g-v2'; name that Gemma as "
      "the model");
  CHECK(contains(verdict("2.5.0", "g-v1", "gemma4_unified", std::nullopt), "refused"));
  CHECK(contains(verdict("2.5.0", "g-v1", "gemma3", std::nullopt), "has no gemma_version in its config"));
  // Its own version is of no account then.
  CHECK(verdict("2.0.0", "g-v1", "gemma4_unified", "g-v1") == "fits");
  CHECK(verdict("nonsense", "g-v1", "gemma4_unified", "g-v1") == "fits");
}

TEST_CASE("From 2.4.0 on, a checkpoint that names no Gemma takes one without a version, with a warning") {
  const std::string version = GENERATE("2.4.0", "2.4", "2.4.1", "2.10.0", "3.0.0", "2.5.0-rc1");
  CAPTURE(version);
  CHECK(contains(verdict(version, std::nullopt, "gemma4_unified", std::nullopt),
                 "ltx: is of version " + version));
  CHECK_FALSE(contains(verdict(version, std::nullopt, "gemma4_unified", std::nullopt), "refused"));
  CHECK(contains(verdict(version, std::nullopt, "gemma4_unified", "g-v1"), "refused: ltx: is of version"));
}

TEST_CASE("Earlier checkpoints, and those without a version, take a Gemma 3") {
  const Text version = GENERATE(Text(), Text("2.0.0"), Text("2.3.9"), Text("2.3"), Text("0.9.8"));
  CHECK(verdict(version, std::nullopt, "gemma3", std::nullopt) == "fits");
  CHECK(verdict(version, std::nullopt, "gemma3_text", std::nullopt) == "fits");
  CHECK(verdict(version, std::nullopt, "gemma3", "any") == "fits");
  CHECK(
      verdict(version, std::nullopt, "gemma4_unified", std::nullopt) ==
      "refused: ltx: needs a Gemma 3, but the model's type is 'gemma4_unified'; name a Gemma 3 as the model");
}

TEST_CASE("A version that is none is refused") {
  const std::string version =
      GENERATE("", "2", "two", "2.", ".4", "-2.4.0", "2.-4", "2.99999999999999999999");
  CAPTURE(version);
  CHECK(contains(verdict(version, std::nullopt, "gemma3", std::nullopt),
                 "refused: ltx: key 'model_version': is '"));
}
