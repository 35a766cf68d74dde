#include "config/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

TextConfig parse(const json& document) {
  return parse_model_config(document.dump(), "config.json");
}

/// The error of the smallest text model with `key` set to `value`.
std::string refusal(const std::string& key, const json& value) {
  return error_of([&] { parse({{"model_type", "gemma3_text"}, {key, value}}); });
}

/// A model with the given keys over the defaults, multimodal.
TextConfig nested(json text) {
  return parse({{"model_type", "gemma3"}, {"text_config", std::move(text)}});
}

std::vector<std::int64_t> full_layers(const TextConfig& config) {
  std::vector<std::int64_t> layers;
  for (std::size_t i = 0; i < config.layer_kinds.size(); ++i) {
    if (config.layer_kinds[i] == LayerKind::kFull) layers.push_back(static_cast<std::int64_t>(i));
  }
  return layers;
}

void check_tiny(const TextConfig& config) {
  CHECK(config.vocab_size == 512);
  CHECK(config.hidden_size == 96);
  CHECK(config.intermediate_size == 192);
  CHECK(config.num_layers == 8);
  CHECK(config.num_heads == 4);
  CHECK(config.head_dim == 64);
  CHECK(config.sliding_window == 16);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_full == RopeConfig{1e6, 8.0});
  CHECK(config.rope_sliding == RopeConfig{1e4, 1.0});
  CHECK(config.layer_kinds.size() == 8);
  CHECK(full_layers(config) == std::vector<std::int64_t>{5});
  CHECK(config.tie_word_embeddings);
  CHECK(config.bos_id == 2);
  CHECK(config.pad_id == 0);
  CHECK(config.eos_ids == std::vector<std::int64_t>{1});
}

}  // namespace

TEST_CASE("The tiny multimodal model's config is read") {
  const TextConfig config = load_model_config(std::string(GEMMAD_TEST_DATA) + "/config/gemma3_tiny.json");
  check_tiny(config);
  CHECK(config.model_type == "gemma3");
  CHECK(config.num_kv_heads == 2);
  CHECK(config.query_pre_attn_scalar == 48);
  CHECK(std::abs(config.score_scale() - 0.14433756729740643) < 1e-15);
}

TEST_CASE("The tiny text model's config is read") {
  const TextConfig config = parse_model_config(config_data("gemma3_text_tiny.json"), "config.json");
  check_tiny(config);
  CHECK(config.model_type == "gemma3_text");
  CHECK(config.num_kv_heads == 1);
  CHECK(config.score_scale() == 0.125);
}

TEST_CASE("A config without any key takes every default") {
  const TextConfig config = parse({{"model_type", "gemma3_text"}});
  CHECK(config.vocab_size == 262208);
  CHECK(config.hidden_size == 2304);
  CHECK(config.intermediate_size == 9216);
  CHECK(config.num_layers == 26);
  CHECK(config.num_heads == 8);
  CHECK(config.num_kv_heads == 4);
  CHECK(config.head_dim == 256);
  CHECK(config.sliding_window == 4096);
  CHECK(config.query_pre_attn_scalar == 256);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_full == RopeConfig{1e6, 1.0});
  CHECK(config.rope_sliding == RopeConfig{1e4, 1.0});
  CHECK(full_layers(config) == std::vector<std::int64_t>{5, 11, 17, 23});
  CHECK(config.tie_word_embeddings);
  CHECK(config.bos_id == 2);
  CHECK(config.pad_id == 0);
  CHECK(config.eos_ids == std::vector<std::int64_t>{1});
}

TEST_CASE("The released models have their published sizes") {
  struct Model {
    const char* file;
    std::int64_t hidden, intermediate, layers, heads, kv_heads, window, vocab;
    double full_factor;
    std::vector<std::int64_t> full;
  };
  const Model model = GENERATE(
      Model{"gemma3_270m.json", 640, 2048, 18, 4, 1, 512, 262144, 1, {5, 11, 17}},
      Model{"gemma3_1b.json", 1152, 6912, 26, 4, 1, 512, 262144, 1, {5, 11, 17, 23}},
      Model{"gemma3_4b_sparse.json", 2560, 10240, 34, 8, 4, 1024, 262208, 8, {5, 11, 17, 23, 29}},
      Model{"gemma3_12b.json", 3840, 15360, 48, 16, 8, 1024, 262208, 8, {5, 11, 17, 23, 29, 35, 41, 47}});
  INFO(model.file);
  const TextConfig config = parse_model_config(config_data(model.file), model.file);
  CHECK(config.hidden_size == model.hidden);
  CHECK(config.intermediate_size == model.intermediate);
  CHECK(config.num_layers == model.layers);
  CHECK(config.num_heads == model.heads);
  CHECK(config.num_kv_heads == model.kv_heads);
  CHECK(config.head_dim == 256);
  CHECK(config.sliding_window == model.window);
  CHECK(config.vocab_size == model.vocab);
  CHECK(config.score_scale() == 0.0625);
  CHECK(config.rope_full == RopeConfig{1e6, model.full_factor});
  CHECK(config.rope_sliding == RopeConfig{1e4, 1.0});
  CHECK(full_layers(config) == model.full);
}

TEST_CASE("The score scale follows query_pre_attn_scalar, not the head width") {
  const TextConfig config = nested({{"head_dim", 128}, {"query_pre_attn_scalar", 168}});
  CHECK(std::abs(config.score_scale() - 0.0771517) < 1e-7);
}

TEST_CASE("Both spellings of RoPE give the same") {
  const json old_spelling = {{"rope_theta", 2e6},
                             {"rope_local_base_freq", 2e4},
                             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}};
  const json new_spelling = {
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "linear"}, {"rope_theta", 2e6}, {"factor", 4}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}}}};
  for (const json& text : {old_spelling, new_spelling}) {
    CHECK(nested(text).rope_full == RopeConfig{2e6, 4.0});
    CHECK(nested(text).rope_sliding == RopeConfig{2e4, 1.0});
  }
}

TEST_CASE("rope_scaling never reaches the sliding layers") {
  const json scaling =
      GENERATE(json{{"rope_type", "linear"}, {"factor", 8}}, json{{"type", "linear"}, {"factor", 8}});
  const TextConfig config = nested({{"rope_scaling", scaling}});
  CHECK(config.rope_full == RopeConfig{1e6, 8.0});
  CHECK(config.rope_sliding == RopeConfig{1e4, 1.0});
}

TEST_CASE("A sliding factor of the new spelling stays with the sliding layers") {
  const TextConfig config =
      nested({{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}});
  CHECK(config.rope_full == RopeConfig{1e6, 1.0});
  CHECK(config.rope_sliding == RopeConfig{1e4, 2.0});
}

TEST_CASE("Default RoPE ignores a factor") {
  CHECK(nested({{"rope_scaling", {{"rope_type", "default"}, {"factor", 8}}}}).rope_full ==
        RopeConfig{1e6, 1.0});
}

TEST_CASE("rope_parameters that leave out a theta take the old key's") {
  const TextConfig config =
      nested({{"rope_theta", 5e5}, {"rope_parameters", {{"full_attention", json::object()}}}});
  CHECK(config.rope_full == RopeConfig{5e5, 1.0});
}

TEST_CASE("RoPE that would be computed wrongly is refused by key") {
  const auto [key, value, message] = GENERATE(table<std::string, std::string, std::string>({
      {"rope_scaling", R"({"rope_type":"yarn","factor":8})",
       "key 'rope_scaling.rope_type': is 'yarn'; supported are"},
      {"rope_scaling", R"({"type":"dynamic","factor":8})", "key 'rope_scaling.type': is 'dynamic'"},
      {"rope_scaling", R"({"rope_type":"linear"})", "key 'rope_scaling.factor': is missing"},
      {"rope_scaling", R"({"factor":8})", "key 'rope_scaling.rope_type': is missing beside 'factor'"},
      {"rope_scaling", R"({"rope_type":"linear","factor":0})",
       "key 'rope_scaling.factor': is 0, must be a number"},
      {"rope_scaling", R"({"rope_type":"linear","factor":-8})", "key 'rope_scaling.factor': is -8"},
      {"rope_scaling", R"({"rope_type":"linear","factor":"8"})", "key 'rope_scaling.factor': is '8'"},
      {"rope_scaling", R"({"rope_type":3,"factor":8})",
       "key 'rope_scaling.rope_type': is 3, must be a string"},
      {"rope_scaling", R"("linear")", "key 'rope_scaling': is 'linear', must be an object"},
      {"rope_parameters", R"([])", "key 'rope_parameters': is an array, must be an object"},
      {"rope_parameters", R"({"rope_type":"linear","factor":8})",
       "key 'rope_parameters.factor': is no kind of layer"},
      {"rope_parameters", R"({"full_attention":1})",
       "key 'rope_parameters.full_attention': is 1, must be an object"},
      {"rope_parameters", R"({"full_attention":{"rope_type":"llama3"}})",
       "key 'rope_parameters.full_attention.rope_type': is 'llama3'"},
      {"rope_parameters", R"({"sliding_attention":{"rope_theta":0}})",
       "key 'rope_parameters.sliding_attention.rope_theta': is 0, must be a number"},
      {"rope_theta", "0.5", "key 'rope_theta': is 0.5, must be a number from 1 to 1e+12"},
      {"rope_theta", "null", "key 'rope_theta': is null"},
      {"rope_local_base_freq", "1e300", "key 'rope_local_base_freq': is 1e+300"},
  }));
  const std::string error = refusal(key, json::parse(value));
  CAPTURE(error);
  CHECK(contains(error, "config.json: " + message));
}

TEST_CASE("layer_types rules over the pattern") {
  const TextConfig config =
      nested({{"num_hidden_layers", 3},
              {"sliding_window_pattern", 2},
              {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}}});
  CHECK(full_layers(config) == std::vector<std::int64_t>{0});
}

TEST_CASE("Without layer_types every Pth layer is full, under either name of the pattern") {
  const std::string key = GENERATE(as<std::string>{}, "sliding_window_pattern", "_sliding_window_pattern");
  CHECK(full_layers(nested({{"num_hidden_layers", 5}, {key, 2}})) == std::vector<std::int64_t>{1, 3});
  CHECK(full_layers(nested({{"num_hidden_layers", 2}, {key, 1}})) == std::vector<std::int64_t>{0, 1});
  CHECK(full_layers(nested({{"num_hidden_layers", 2}, {key, 3}, {"layer_types", nullptr}})).empty());
}

TEST_CASE("Layer types that do not fit the model are refused") {
  CHECK(refusal("layer_types", json::array({"full_attention"})) ==
        "config.json: key 'layer_types': has 1 elements for 26 layers");
  CHECK(contains(refusal("layer_types", json::array()), "has 0 elements for 26 layers"));
  CHECK(contains(refusal("layer_types", std::vector<int>(100'000)), "has 100000 elements, at most 512"));
  CHECK(contains(refusal("layer_types", "full_attention"), "is 'full_attention', must be an array"));
  std::vector<std::string> types(26, "full_attention");
  types[3] = "chunked_attention";
  CHECK(contains(refusal("layer_types", types),
                 "config.json: key 'layer_types[3]': is 'chunked_attention'; known are"));
  CHECK(
      contains(refusal("layer_types", std::vector<int>(26)), "key 'layer_types[0]': is 0, must be a string"));
}

TEST_CASE("Sizes are taken at their bounds and refused beyond") {
  const auto [key, min, max] = GENERATE(table<std::string, std::int64_t, std::int64_t>({
      {"vocab_size", 3, 4194304},
      {"hidden_size", 1, 65536},
      {"intermediate_size", 1, 1048576},
      {"num_hidden_layers", 1, 512},
      {"num_attention_heads", 4, 1024},
      {"num_key_value_heads", 1, 8},
      {"head_dim", 2, 4096},
      {"sliding_window", 1, 1048576},
      {"sliding_window_pattern", 1, 512},
      {"_sliding_window_pattern", 1, 512},
  }));
  CAPTURE(key);
  CHECK(refusal(key, min).empty());
  CHECK(refusal(key, max).empty());
  for (const json& bad :
       {json(0), json(-1), json(-max), json(4194305), json(9223372036854775807), json(18446744073709551615u),
        json(1e30), json(256.0), json("256"), json(nullptr), json(true), json::array({256})}) {
    const std::string error = refusal(key, bad);
    CAPTURE(bad.dump(), error);
    CHECK(contains(error, "config.json: key '" + key + "': is "));
    CHECK(contains(error, ", must be an integer from "));
  }
}

TEST_CASE("Constants must be positive numbers within reason") {
  const std::string key = GENERATE(as<std::string>{}, "query_pre_attn_scalar", "rms_norm_eps");
  CHECK(refusal(key, 0.01).empty());
  for (const json& bad : {json(0), json(-1), json(1e300), json("1"), json(nullptr)}) {
    CAPTURE(bad.dump());
    CHECK(contains(refusal(key, bad), "config.json: key '" + key + "': is "));
  }
}

TEST_CASE("Heads that do not divide by kv heads are refused") {
  CHECK(refusal("num_key_value_heads", 3) ==
        "config.json: key 'num_attention_heads': is 8, not a multiple of num_key_value_heads (3)");
  CHECK(contains(refusal("num_key_value_heads", 16), "is 8, not a multiple of num_key_value_heads (16)"));
}

TEST_CASE("An odd head width is refused") {
  CHECK(refusal("head_dim", 255) == "config.json: key 'head_dim': is 255; RoPE needs an even one");
}

TEST_CASE("Variants of the model that are computed otherwise are refused") {
  CHECK(contains(refusal("use_bidirectional_attention", true), "only causal attention is supported"));
  CHECK(contains(refusal("use_bidirectional_attention", "all"), "is 'all', must be true or false"));
  CHECK(contains(refusal("attention_bias", true), "only projections without bias are supported"));
  CHECK(contains(refusal("attn_logit_softcapping", 50.0), "is 50.0; only null is supported"));
  CHECK(contains(refusal("hidden_activation", "gelu"), "only 'gelu_pytorch_tanh' is supported"));
  CHECK(contains(refusal("hidden_activation", nullptr), "is null, must be a string"));
}

TEST_CASE("What does not change the encoder is accepted") {
  CHECK(refusal("final_logit_softcapping", 30.0).empty());
  CHECK(refusal("attn_logit_softcapping", nullptr).empty());
  CHECK(refusal("use_bidirectional_attention", nullptr).empty());
  CHECK(refusal("some_new_key", json::object({{"a", {1, 2}}})).empty());
}

TEST_CASE("Other models are refused by name") {
  const auto type = GENERATE(as<std::string>{}, "gemma2", "gemma4_unified", "llama", "", "Gemma3");
  CHECK(error_of([&] {
          parse({{"model_type", type}});
        }) == "config.json: key 'model_type': is '" + type + "'; supported are 'gemma3', 'gemma3_text'");
}

TEST_CASE("A config without a model type is refused") {
  CHECK(error_of([] { parse(json::object()); }) ==
        "config.json: key 'model_type': is missing; supported are 'gemma3', 'gemma3_text'");
  CHECK(contains(error_of([] { parse({{"model_type", 3}}); }), "key 'model_type': is 3, must be a string"));
}

TEST_CASE("A multimodal config needs a text section of the right type") {
  CHECK(contains(error_of([] { parse({{"model_type", "gemma3"}}); }), "key 'text_config': is missing"));
  CHECK(contains(error_of([] {
                   parse({{"model_type", "gemma3"}, {"text_config", 1}});
                 }),
                 "key 'text_config': is 1, must be an object"));
  CHECK(contains(error_of([] {
                   nested({{"model_type", "gemma2"}});
                 }),
                 "key 'text_config.model_type': is 'gemma2'; supported is 'gemma3_text'"));
}

TEST_CASE("Errors in the text section carry its path") {
  CHECK(contains(error_of([] {
                   nested({{"hidden_size", 0}});
                 }),
                 "config.json: key 'text_config.hidden_size': is 0"));
  CHECK(contains(error_of([] {
                   nested({{"rope_scaling", {{"rope_type", "yarn"}}}});
                 }),
                 "key 'text_config.rope_scaling.rope_type'"));
}

TEST_CASE("Ids of the top level rule over those of the text section") {
  const TextConfig config =
      parse({{"model_type", "gemma3"},
             {"eos_token_id", {1, 106}},
             {"text_config", {{"eos_token_id", 1}, {"bos_token_id", 5}, {"pad_token_id", 6}}}});
  CHECK(config.eos_ids == std::vector<std::int64_t>{1, 106});
  CHECK(config.bos_id == 5);
  CHECK(config.pad_id == 6);
}

TEST_CASE("An end id may be one number, a list or null") {
  CHECK(nested({{"eos_token_id", 106}}).eos_ids == std::vector<std::int64_t>{106});
  CHECK(nested({{"eos_token_id", {106}}}).eos_ids == std::vector<std::int64_t>{106});
  CHECK(nested({{"eos_token_id", nullptr}}).eos_ids == std::vector<std::int64_t>{1});
}

TEST_CASE("Ids outside the vocabulary are refused") {
  const std::string key = GENERATE(as<std::string>{}, "bos_token_id", "pad_token_id", "eos_token_id");
  CHECK(contains(refusal(key, 262208),
                 "config.json: key '" + key + "': is 262208, must be an integer from 0 to 262207"));
  CHECK(contains(refusal(key, -1), "is -1, must be"));
  CHECK(contains(refusal(key, "2"), "is '2', must be"));
  CHECK(contains(refusal("eos_token_id", json::array({1, 262208})), "is 262208, must be"));
  CHECK(contains(refusal("vocab_size", 2), "key 'bos_token_id': is 2 by default, beyond the vocabulary"));
}

TEST_CASE("An untied head is told") {
  CHECK_FALSE(nested({{"tie_word_embeddings", false}}).tie_word_embeddings);
  CHECK(contains(refusal("tie_word_embeddings", 1), "is 1, must be true or false"));
}

TEST_CASE("A repeated key in a model's config is refused, nested ones too") {
  CHECK(error_of([] {
          parse_model_config(R"({"model_type":"gemma3_text","model_type":"gemma3_text"})", "config.json");
        }) == "config.json: key 'model_type': is repeated");
  CHECK(error_of([] {
          parse_model_config(R"({"model_type":"gemma3","text_config":{"head_dim":64,"head_dim":64}})",
                             "config.json");
        }) == "config.json: key 'text_config.head_dim': is repeated");
}

TEST_CASE("A model's config that is no object or no JSON is refused by place") {
  CHECK(contains(error_of([] { parse_model_config("[]", "config.json"); }),
                 "config.json: line 1 column 1: is an array, must be an object"));
  CHECK(contains(error_of([] { parse_model_config("<!doctype html>", "config.json"); }),
                 "config.json: line 1 column 1: "));
  CHECK(contains(error_of([] { parse_model_config("", "config.json"); }), "is empty"));
}
