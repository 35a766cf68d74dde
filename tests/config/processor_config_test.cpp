#include "config/processor_config.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

ProcessorConfig parse(const json& transformer) {
  const json config = {{"transformer", transformer}, {"scheduler", {{"x", 1}}}};
  return parse_processor_metadata({{"config", config.dump()}}, "ltx").config;
}

/// A V2 transformer as published, with the given keys over it.
json v2(const json& changes = json::object()) {
  json transformer = {{"connector_num_attention_heads", 32},
                      {"connector_attention_head_dim", 128},
                      {"connector_num_layers", 8},
                      {"audio_connector_num_attention_heads", 32},
                      {"audio_connector_attention_head_dim", 64},
                      {"num_attention_heads", 32},
                      {"attention_head_dim", 128},
                      {"audio_num_attention_heads", 32},
                      {"audio_attention_head_dim", 64},
                      {"connector_apply_gated_attention", true},
                      {"connector_num_learnable_registers", 128},
                      {"connector_positional_embedding_max_pos", {4096}},
                      {"rope_type", "split"},
                      {"frequencies_precision", "float64"},
                      {"caption_proj_before_connector", true},
                      {"caption_projection_first_linear", false},
                      {"caption_proj_input_norm", false},
                      {"caption_projection_second_linear", false}};
  transformer.update(changes);
  return transformer;
}

std::string refusal(const json& transformer) {
  return error_of([&] { parse(transformer); });
}

std::string refusal_of(const FileMetadata& metadata) {
  return error_of([&] { parse_processor_metadata(metadata, "ltx"); });
}

}  // namespace

TEST_CASE("A transformer without any key takes LTX-2's defaults") {
  const ProcessorConfig config = parse(json::object());
  CHECK(config.variant == ProcessorVariant::kV1);
  CHECK(config.video == ConnectorConfig{30, 128, 2});
  CHECK(config.audio == config.video);
  CHECK_FALSE(config.has_gates);
  CHECK(config.has_ffn_bias);
  CHECK(config.rope_layout == RopeLayout::kSplit);
  CHECK_FALSE(config.has_double_grid);
  CHECK(config.max_pos == 1);
}

TEST_CASE("A published V2 config is the preset") {
  CHECK(parse(v2()) == processor_preset(ProcessorPreset::kLtx2_3));
}

TEST_CASE("A published V1 config is the preset") {
  CHECK(parse({{"rope_type", "split"},
               {"connector_num_layers", 2},
               {"connector_num_attention_heads", 30},
               {"connector_attention_head_dim", 128},
               {"connector_num_learnable_registers", 128},
               {"frequencies_precision", "float64"},
               {"connector_positional_embedding_max_pos", {4096}}}) ==
        processor_preset(ProcessorPreset::kLtx2));
  CHECK_THROWS_AS(processor_preset(ProcessorPreset::kNone), std::invalid_argument);
}

TEST_CASE("Audio takes video's value for each key of its own that is not there") {
  const ProcessorConfig config = parse({{"connector_num_attention_heads", 4},
                                        {"connector_attention_head_dim", 32},
                                        {"connector_num_layers", 3},
                                        {"audio_connector_num_attention_heads", 2}});
  CHECK(config.video == ConnectorConfig{4, 32, 3});
  CHECK(config.audio == ConnectorConfig{2, 32, 3});
}

TEST_CASE("Every other key does what it says") {
  const ProcessorConfig config = parse({{"rope_type", "interleaved"},
                                        {"frequencies_precision", "float32"},
                                        {"connector_apply_gated_attention", true},
                                        {"connector_ff_bias", false},
                                        {"connector_positional_embedding_max_pos", {20}}});
  CHECK(config.rope_layout == RopeLayout::kInterleaved);
  CHECK_FALSE(config.has_double_grid);
  CHECK(config.has_gates);
  CHECK_FALSE(config.has_ffn_bias);
  CHECK(config.max_pos == 20);
}

TEST_CASE("Some of the caption keys, or other values, are refused by name") {
  const std::string key = GENERATE("caption_proj_before_connector", "caption_projection_first_linear",
                                   "caption_proj_input_norm", "caption_projection_second_linear");
  json without = v2();
  without.erase(key);
  CHECK(contains(refusal(without), "ltx: key 'config.transformer." + key + "': is missing"));
  json other = v2();
  other[key] = !other[key].get<bool>();
  CHECK(contains(refusal(other), "ltx: key 'config.transformer." + key + "': is "));
  CHECK(contains(refusal(other), "is supported"));
  CHECK(contains(refusal(v2({{key, 1}})), key));
  CHECK(contains(refusal(v2({{key, nullptr}})), key));
  // One alone.
  CHECK(contains(refusal({{key, v2()[key]}}), "is missing"));
}

TEST_CASE("Bad values are refused by name") {
  const auto refused = [](const char* key, const json& value) {
    const std::string said = refusal(v2({{key, value}}));
    CAPTURE(key, value.dump(), said);
    CHECK(contains(said, std::string("ltx: key 'config.transformer.") + key));
  };
  refused("rope_type", "spiral");
  refused("rope_type", 1);
  refused("frequencies_precision", 64);
  refused("connector_num_attention_heads", 0);
  refused("connector_num_attention_heads", 2.0);
  refused("connector_num_attention_heads", nullptr);
  refused("connector_attention_head_dim", 127);
  refused("connector_attention_head_dim", "128");
  refused("connector_attention_head_dim", 100000);
  refused("connector_num_layers", 0);
  refused("connector_num_layers", 100000);
  refused("connector_apply_gated_attention", 1);
  refused("connector_ff_bias", "no");
  refused("connector_positional_embedding_max_pos", 4096);
  refused("connector_positional_embedding_max_pos", json::array());
  refused("connector_positional_embedding_max_pos", {4096, 1});
  refused("connector_positional_embedding_max_pos", {0});
  refused("connector_positional_embedding_max_pos", {0.5});
  CHECK(contains(refusal({{"connector_num_attention_heads", 1024}, {"connector_attention_head_dim", 128}}),
                 "131072 wide, must be between 4 and 65536"));
  CHECK(contains(refusal({{"connector_num_attention_heads", 1}, {"connector_attention_head_dim", 2}}),
                 "2 wide, must be between"));
}

TEST_CASE("V2's widths come from the transformer and must be the connectors'") {
  CHECK(
      contains(refusal(v2({{"attention_head_dim", 64}})),
               "'config.transformer.num_attention_heads': makes features 2048 wide, for a connector that is "
               "4096 wide"));
  CHECK(contains(refusal(v2({{"audio_num_attention_heads", 16}})), "audio_num_attention_heads"));
  json without = v2();
  without.erase("audio_attention_head_dim");
  CHECK(contains(refusal(without), "'config.transformer.audio_attention_head_dim': is missing"));
}

TEST_CASE("Metadata without a config, or with one that is none, is refused") {
  CHECK(contains(refusal_of({}), "ltx: has no 'config' in its metadata"));
  CHECK(contains(refusal_of({{"config", ""}}), "key 'config'"));
  CHECK(contains(refusal_of({{"config", "{"}}), "key 'config'"));
  CHECK(contains(refusal_of({{"config", "[]"}}), "key 'config'"));
  CHECK(contains(refusal_of({{"config", "{}"}}), "key 'config.transformer': is missing"));
  CHECK(contains(refusal_of({{"config", R"({"transformer": []})"}}), "key 'config.transformer'"));
  CHECK(contains(refusal_of({{"config", R"({"transformer": {}, "transformer": {}})"}}), "repeated"));
  CHECK(contains(refusal_of({{"config", std::string(2 << 20, ' ')}}), "bytes"));
}

TEST_CASE("What is said about the Gemma is read") {
  const auto pairing = [](FileMetadata metadata) {
    metadata["config"] = R"({"transformer": {}})";
    return parse_processor_metadata(metadata, "ltx").pairing;
  };
  CHECK(pairing({}) == GemmaPairing{});
  CHECK(pairing({{"model_version", "2.3.0"}}) == GemmaPairing{"2.3.0", std::nullopt});
  CHECK(pairing({{"model_version", "\"2.3.0\""}}) == GemmaPairing{"2.3.0", std::nullopt});
  CHECK(pairing({{"model_version", "2.5.0"},
                 {"gemma_source_checkpoint", R"({"ltx_version": "2.5.0", "gemma_version": "g-v1"})"}}) ==
        GemmaPairing{"2.5.0", "g-v1"});
  const auto refused = [&](const std::string& text) {
    return error_of([&] { pairing({{"gemma_source_checkpoint", text}}); });
  };
  CHECK(contains(refused("{}"), "key 'gemma_source_checkpoint.gemma_version': is missing"));
  CHECK(contains(refused(R"({"gemma_version": 4})"), "key 'gemma_source_checkpoint.gemma_version'"));
  CHECK(contains(refused("g-v1"), "key 'gemma_source_checkpoint'"));
  CHECK(contains(error_of([&] { pairing({{"model_version", std::string(5000, '2')}}); }), "model_version"));
}

TEST_CASE("V1's connectors are as wide as the hidden states, V2's as they like") {
  ProcessorConfig config = processor_preset(ProcessorPreset::kLtx2);
  const auto refused = [&](std::int64_t hidden_size) {
    return error_of([&] { check_fits(config, {hidden_size, 49}, "ltx"); });
  };
  CHECK(refused(3840).empty());
  CHECK(contains(refused(2560), "ltx: the video connector is 3840 wide, the Gemma's hidden states are 2560"));
  config.audio.num_heads = 2;
  CHECK(contains(refused(3840), "ltx: the audio connector is 256 wide"));
  config.variant = ProcessorVariant::kV2;
  CHECK(refused(2560).empty());
}
