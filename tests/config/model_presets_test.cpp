#include "config/model_presets.h"

#include <stdexcept>
#include <string_view>

#include "tests/support/catch.h"

using namespace gemmad;

namespace {

/// A config.json as published: sparse.
TextConfig published(std::string_view text) {
  return parse_model_config(text, "config.json");
}

}  // namespace

TEST_CASE("A preset is the model that its config.json makes") {
  CHECK(preset_config(Preset::kGemma3_270m) ==
        published(R"({"model_type": "gemma3_text", "vocab_size": 262144,
    "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
    "num_key_value_heads": 1, "sliding_window": 512})"));
  CHECK(preset_config(Preset::kGemma3_1b) == published(R"({"model_type": "gemma3_text", "vocab_size": 262144,
    "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
    "num_key_value_heads": 1, "sliding_window": 512})"));
  CHECK(preset_config(Preset::kGemma3_4b) == published(R"({"model_type": "gemma3", "text_config": {
    "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"));
  CHECK(preset_config(Preset::kGemma3_12b) == published(R"({"model_type": "gemma3", "text_config": {
    "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 8, "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"));
  CHECK(preset_config(Preset::kGemma3_27b) == published(R"({"model_type": "gemma3", "text_config": {
    "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 168, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"));
}

TEST_CASE("No preset is no model") {
  CHECK_THROWS_AS(preset_config(Preset::kNone), std::invalid_argument);
}
