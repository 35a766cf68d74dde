#include "daemon/model/tensor_names.h"

#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

bool is(const char* file_name, TensorRole role, const char* name) {
  const TensorIdentity identity = identify_tensor(file_name);
  return identity.role == role && identity.name == name;
}

}  // namespace

TEST_CASE("All three layouts of names lead to the same canonical name") {
  CHECK(is("language_model.model.layers.3.mlp.up_proj.weight", TensorRole::kText,
           "layers.3.mlp.up_proj.weight"));
  CHECK(is("model.language_model.layers.3.mlp.up_proj.weight", TensorRole::kText,
           "layers.3.mlp.up_proj.weight"));
  CHECK(is("model.layers.3.mlp.up_proj.weight", TensorRole::kText, "layers.3.mlp.up_proj.weight"));
  CHECK(is("model.embed_tokens.weight", TensorRole::kText, "embed_tokens.weight"));
  CHECK(is("language_model.model.norm.weight", TensorRole::kText, "norm.weight"));
}

TEST_CASE("Vision tensors are told, with and without the outer and the inner prefix") {
  for (const char* name :
       {"vision_tower.vision_model.post_layernorm.bias", "vision_tower.encoder.layers.0.mlp.fc1.weight",
        "model.vision_tower.head.probe", "model.vision_tower.vision_model.embeddings.patch_embedding.weight",
        "multi_modal_projector.mm_soft_emb_norm.weight",
        "model.multi_modal_projector.mm_input_projection_weight"}) {
    CAPTURE(name);
    CHECK(identify_tensor(name).role == TensorRole::kVision);
  }
}

TEST_CASE("The tied head is told") {
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"}) {
    CHECK(identify_tensor(name).role == TensorRole::kHead);
  }
}

TEST_CASE("Other names are unknown") {
  for (const char* name :
       {"", "model.", "layers.0.mlp.up_proj.weight", "norm.weight", "model.model.norm.weight", "lm_head.bias",
        "language_model.vision_tower.x", "audio_tower.x", "model.embed_audio.x"}) {
    CAPTURE(name);
    CHECK(identify_tensor(name).role == TensorRole::kUnknown);
    CHECK(identify_tensor(name).name == name);
  }
}

TEST_CASE("The table of tensors has thirteen a layer and two more, without repeats") {
  const TextConfig config = small_config(16);
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  CHECK(tensors.size() == 3 * 13 + 2);
  std::int64_t parameters = 0;
  for (const ExpectedTensor& tensor : tensors)
    parameters += tensor.shape.num_elements();
  const std::int64_t d = 48, f = 80, q = 128, kv = 64, s = 32;
  CHECK(parameters == 512 * d + d + 3 * (4 * d + 2 * s + 2 * q * d + 2 * kv * d + 3 * f * d));
}

TEST_CASE("The table of Gemma 3 270M adds up to its published number of parameters") {
  TextConfig config = small_config(512);
  config.vocab_size = 262144;
  config.hidden_size = 640;
  config.intermediate_size = 2048;
  config.num_layers = 18;
  config.num_kv_heads = 1;
  config.head_dim = 256;
  std::int64_t parameters = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config))
    parameters += tensor.shape.num_elements();
  CHECK(parameters == 268098176);
}

}  // namespace gemmad
