#include "config/generation_config.h"

#include <nlohmann/json.hpp>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;
using Ids = std::vector<std::int64_t>;
using StopIds = std::vector<std::int32_t>;

namespace {

GenerationConfig parse(const json& document) {
  return parse_generation_config(document.dump(), "generation_config.json");
}

std::string refusal(const json& eos) {
  return error_of([&] { parse({{"eos_token_id", eos}}); });
}

TextConfig model_with(Ids eos_ids) {
  TextConfig config{};
  config.eos_ids = std::move(eos_ids);
  return config;
}

}  // namespace

TEST_CASE("A generation config names one id, several or none") {
  CHECK(parse({{"eos_token_id", 106}}).eos_ids == Ids{106});
  CHECK(parse({{"eos_token_id", {1, 106}}, {"top_k", 64}, {"do_sample", true}}).eos_ids == Ids{1, 106});
  CHECK(parse({{"eos_token_id", nullptr}}).eos_ids.empty());
  CHECK(parse({{"eos_token_id", json::array()}}).eos_ids.empty());
  CHECK(parse(json::object()).eos_ids.empty());
}

TEST_CASE("What is no id in a generation config is refused by key") {
  CHECK(contains(refusal(-1), "generation_config.json: key 'eos_token_id': is -1"));
  CHECK(contains(refusal("1"), "key 'eos_token_id'"));
  CHECK(contains(refusal(1.0), "key 'eos_token_id'"));
  CHECK(contains(refusal(true), "key 'eos_token_id'"));
  CHECK(contains(refusal({1, 2147483648}), "key 'eos_token_id[1]': is 2147483648"));
  CHECK(contains(refusal({{1}}), "key 'eos_token_id[0]'"));
  CHECK(contains(refusal(json(std::vector<int>(65, 1))), "key 'eos_token_id'"));
  CHECK(contains(error_of([] { parse_generation_config("[]", "g.json"); }), "g.json: line 1 column 1"));
  CHECK(contains(error_of([] { parse_generation_config("{", "g.json"); }), "g.json"));
  const std::string long_text(kMaxConfigBytes + 1, ' ');
  CHECK(contains(error_of([&] { parse_generation_config(long_text, "g.json"); }), "g.json"));
}

TEST_CASE("A generation config that is not there is none, and one that cannot be read an error") {
  const std::string models = std::string(GEMMAD_TEST_DATA) + "/models/";
  CHECK(load_generation_config(models + "gemma3-tiny/generation_config.json") == GenerationConfig{{1}});
  CHECK_FALSE(load_generation_config(models + "no-such-model/generation_config.json"));
  CHECK(contains(error_of([&] { load_generation_config(models); }), models));
}

TEST_CASE(
    "Generation stops at the ids of its own config, else at the model's, and always at 1 and the turn's "
    "end") {
  const TextConfig model = model_with({1, 7});
  CHECK(stop_ids(model, std::nullopt, 106) == StopIds{1, 7, 106});
  CHECK(stop_ids(model, GenerationConfig{}, 106) == StopIds{1, 7, 106});
  CHECK(stop_ids(model, GenerationConfig{{50, 9}}, 106) == StopIds{1, 9, 50, 106});
  CHECK(stop_ids(model_with({106}), GenerationConfig{{106, 1}}, 106) == StopIds{1, 106});
  CHECK(stop_ids(model_with({}), std::nullopt, std::nullopt) == StopIds{1});
}
