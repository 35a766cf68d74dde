#include "config/vision_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

std::optional<VisionConfig> parse(const json& document) {
  const std::string text = document.dump();
  return parse_vision_config(text, "config.json", parse_model_config(text, "config.json"));
}

/// A multimodal model with these keys of its tower, and these at its top level.
json model(const json& vision, const json& root = json::object()) {
  json document = {{"model_type", "gemma3"}, {"text_config", json::object()}, {"vision_config", vision}};
  document.update(root);
  return document;
}

std::string refusal(const json& vision, const json& root = json::object()) {
  return error_of([&] { parse(model(vision, root)); });
}

}  // namespace

TEST_CASE("The tiny model's vision config is read") {
  const std::string text = config_data("gemma3_tiny.json");
  const VisionConfig config =
      parse_vision_config(text, "config.json", parse_model_config(text, "config.json")).value();
  CHECK(config == VisionConfig{48, 96, 3, 4, 56, 14, 1e-6, 4, 96, 500, 502, 501});
  CHECK(config.head_dim() == 12);
  CHECK(std::abs(config.score_scale() - 0.28867513459481287) < 1e-15);
  CHECK(config.grid_size() == 4);
  CHECK(config.num_patches() == 16);
  CHECK(config.patch_width() == 588);
  CHECK(config.pool_size() == 2);
}

TEST_CASE("A vision config without any key takes every default") {
  const VisionConfig config = parse(model(json::object())).value();
  CHECK(config == VisionConfig{1152, 4304, 27, 16, 896, 14, 1e-6, 256, 2304, 255999, 262144, 256000});
  CHECK(config.head_dim() == 72);
  CHECK(config.num_patches() == 4096);
  CHECK(config.pool_size() == 4);
}

TEST_CASE("Both spellings of the ids are read, the older one first") {
  const json ids = {{"boi_token_id", 11}, {"eoi_token_id", 12}, {"image_token_id", 13}};
  const VisionConfig config = parse(model(json::object(), ids)).value();
  CHECK(config.image_begin_id == 11);
  CHECK(config.image_end_id == 12);
  CHECK(config.image_token_id == 13);
  json both = ids;
  both["image_token_index"] = 14;
  CHECK(parse(model(json::object(), both))->image_token_id == 14);
}

TEST_CASE("A model without a tower has no vision config") {
  CHECK_FALSE(parse(model(nullptr)).has_value());
  json absent = model(nullptr);
  absent.erase("vision_config");
  CHECK_FALSE(parse(absent).has_value());
  CHECK_FALSE(parse({{"model_type", "gemma3_text"}}).has_value());
  // Not even where a text model's file tells of one.
  CHECK_FALSE(
      parse({{"model_type", "gemma3_text"}, {"vision_config", {{"hidden_act", "relu"}}}}).has_value());
}

TEST_CASE("Keys that change nothing are passed over") {
  CHECK(parse(model({{"vision_use_head", false},
                     {"attention_dropout", 0.0},
                     {"model_type", "siglip_vision_model"},
                     {"num_channels", 3},
                     {"unknown", {1, 2}}}))
            .has_value());
}

TEST_CASE("Towers that would be computed wrongly are refused by key") {
  CHECK(contains(refusal({{"hidden_act", "gelu"}}),
                 "config.json: key 'vision_config.hidden_act': is 'gelu'; only 'gelu_pytorch_tanh' is"));
  CHECK(contains(refusal({{"model_type", "clip_vision_model"}}), "vision_config.model_type': is 'clip"));
  CHECK(contains(refusal({{"num_channels", 4}}), "vision_config.num_channels"));
  CHECK(contains(refusal({{"num_attention_heads", 7}}),
                 "vision_config.hidden_size': is 1152, not a multiple of num_attention_heads (7)"));
  CHECK(contains(refusal({{"hidden_size", 48}, {"num_attention_heads", 16}}),
                 "vision_config.num_attention_heads': is 16, which makes heads 3 wide; only even"));
  CHECK(contains(refusal({{"image_size", 900}}),
                 "vision_config.image_size': is 900, not a multiple of patch_size (14)"));
  CHECK(contains(refusal({{"image_size", 16384}, {"patch_size", 1}}), "268435456 patches; at most 65536"));
}

TEST_CASE("Tokens of an image must divide its patches into squares") {
  for (const int tokens : {255, 9, 8192, 65536, 2}) {
    CAPTURE(tokens);
    CHECK(contains(refusal(json::object(), {{"mm_tokens_per_image", tokens}}),
                   "key 'mm_tokens_per_image': is " + std::to_string(tokens) +
                       ", must be the square of a divisor of the patches of a side (64)"));
  }
  CHECK(parse(model(json::object(), {{"mm_tokens_per_image", 1}}))->pool_size() == 64);
  CHECK(parse(model(json::object(), {{"mm_tokens_per_image", 4096}}))->pool_size() == 1);
}

TEST_CASE("Sizes of a tower out of bounds or of another type are refused by key") {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "image_size", "patch_size", "layer_norm_eps"}) {
    CAPTURE(key);
    for (const json& value : {json(0), json(-1), json(1e300), json("8"), json(nullptr), json::array()}) {
      CAPTURE(value.dump());
      CHECK(contains(refusal({{key, value}}), std::string("key 'vision_config.") + key + "'"));
    }
  }
  CHECK(contains(refusal(json::array()), "key 'vision_config'"));
  CHECK(contains(refusal("siglip"), "key 'vision_config'"));
}

TEST_CASE("Ids of images must be in the vocabulary and differ") {
  CHECK(contains(refusal(json::object(), {{"image_token_index", 262208}}), "key 'image_token_index'"));
  CHECK(contains(refusal(json::object(), {{"eoi_token_id", -1}}), "key 'eoi_token_id'"));
  CHECK(contains(refusal(json::object(), {{"text_config", {{"vocab_size", 262144}}}}),
                 "key 'image_token_index': is 262144 by default, beyond the vocabulary"));
  CHECK(contains(refusal(json::object(), {{"boi_token_index", 262144}}), "must differ"));
  CHECK(contains(refusal(json::object(), {{"boi_token_index", 256000}}), "must differ"));
}
