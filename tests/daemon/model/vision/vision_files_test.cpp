// Which vision towers are taken from a model's directory, and why others are not.
#include "daemon/model/vision/vision_files.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "config/model_presets.h"
#include "daemon/model/vision/vision_tensors.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/daemon/model/vision/vision_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<TensorToWrite>;

bool is_vision(const std::string& name) {
  return name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.");
}

/// The tiny model's directory, which a test may damage.
class EditedModel {
 public:
  EditedModel()
      : tensors(read_tensors(model_folder("gemma3-tiny") / "model.safetensors")),
        config(nlohmann::json::parse(read_file(model_folder("gemma3-tiny") / "config.json"))) {}

  FoundVision find() const {
    write_file(folder_.path() / "model.safetensors", safetensors_bytes(tensors));
    write_file(folder_.path() / "config.json", config.dump());
    return find_vision(folder_.path(), load_model_config(folder_.path() / "config.json"));
  }
  fs::path path() const { return folder_.path(); }
  TensorToWrite& named(const std::string& end) {
    for (TensorToWrite& tensor : tensors) {
      if (tensor.name.ends_with(end)) return tensor;
    }
    throw std::runtime_error("no tensor " + end);
  }

  Tensors tensors;
  nlohmann::json config;

 private:
  ScratchFolder folder_;
};

/// The reason why there is no tower, which must have these parts.
void check_reason(const FoundVision& found, const std::vector<std::string>& parts) {
  CHECK(found.files == nullptr);
  for (const std::string& part : parts) {
    INFO(found.reason);
    CHECK(found.reason.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("Names of the tower's tensors are told from all others") {
  using Name = std::optional<std::string>;
  const Name norm = "vision_tower.post_layernorm.weight";
  CHECK(canonical_vision_name("vision_tower.post_layernorm.weight") == norm);
  CHECK(canonical_vision_name("vision_tower.vision_model.post_layernorm.weight") == norm);
  CHECK(canonical_vision_name("model.vision_tower.post_layernorm.weight") == norm);
  CHECK(canonical_vision_name("model.vision_tower.vision_model.post_layernorm.weight") == norm);
  const Name projector = "multi_modal_projector.mm_input_projection_weight";
  CHECK(canonical_vision_name("multi_modal_projector.mm_input_projection_weight") == projector);
  CHECK(canonical_vision_name("model.multi_modal_projector.mm_input_projection_weight") == projector);
  for (const char* name :
       {"vision_tower.head.probe", "model.vision_tower.vision_model.head.mlp.fc1.weight",
        "vision_tower.vision_model.embeddings.position_ids", "language_model.model.norm.weight",
        "model.layers.0.mlp.up_proj.weight", "vision_model.post_layernorm.weight", "", "model."}) {
    CAPTURE(name);
    CHECK_FALSE(canonical_vision_name(name).has_value());
  }
}

TEST_CASE("The tiny model's tower is opened with all its tensors") {
  const FoundVision found = find_vision(model_folder("gemma3-tiny"),
                                        load_model_config(model_folder("gemma3-tiny") / "config.json"));
  CHECK(found.reason.empty());
  REQUIRE(found.files != nullptr);
  const std::vector<ExpectedTensor> expected = expected_tensors(found.files->config());
  CHECK(expected.size() == 3 + 3 * 16 + 4);
  CHECK(found.files->entries().size() == expected.size());
  const TensorFile direct(model_folder("gemma3-tiny") / "model.safetensors");
  std::uint64_t total = 0;
  for (const ExpectedTensor& tensor : expected) {
    const ConstTensorView view = found.files->tensor(tensor.name).view;
    CHECK(compare_bits(view, direct.get(tensor.name)).ok);
    total += view.size_bytes();
  }
  CHECK(found.files->size_bytes() == total);
  CHECK_THROWS_AS(found.files->tensor("norm.weight"), ModelFileError);
}

TEST_CASE("The published tower has the parameters that it is known for") {
  std::int64_t elements = 0;
  const VisionConfig config = preset_vision_config(Preset::kGemma3_12b).value();
  for (const ExpectedTensor& tensor : expected_tensors(config))
    elements += tensor.shape.num_elements();
  CHECK(elements == 416'866'032 + 4'424'832);
}

TEST_CASE("All spellings of the tensors' names are read, mixed ones too") {
  const std::string outer = GENERATE("", "model.");
  const std::string inner = GENERATE("", "vision_model.");
  CAPTURE(outer, inner);
  EditedModel model;
  for (TensorToWrite& tensor : model.tensors) {
    if (!is_vision(tensor.name)) continue;
    const std::string tower = "vision_tower.";
    if (tensor.name.starts_with(tower)) tensor.name.insert(tower.size(), inner);
    tensor.name.insert(0, outer);
  }
  model.named("post_layernorm.bias").name = "vision_tower.post_layernorm.bias";
  const FoundVision found = model.find();
  INFO(found.reason);
  REQUIRE(found.files != nullptr);
  const VisionFiles original = tiny_vision();
  for (const WeightEntry& entry : original.entries())
    CHECK(compare_bits(found.files->tensor(entry.name).view, original.tensor(entry.name).view).ok);
}

TEST_CASE("A tower may be spread over shards") {
  const EditedModel model;
  const ScratchFolder folder;
  nlohmann::json map;
  Tensors halves[2];
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    halves[i % 2].push_back(model.tensors[i]);
    map[model.tensors[i].name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
  }
  write_file(folder.path() / "a.safetensors", safetensors_bytes(halves[0]));
  write_file(folder.path() / "b.safetensors", safetensors_bytes(halves[1]));
  write_file(folder.path() / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  const VisionFiles files = VisionFiles::open(folder.path(), tiny_vision().config());
  const VisionFiles original = tiny_vision();
  for (const WeightEntry& entry : original.entries())
    CHECK(compare_bits(files.tensor(entry.name).view, original.tensor(entry.name).view).ok);
}

TEST_CASE("A model that reads text only has no tower, and says why") {
  const fs::path text_model = model_folder("gemma3-text-tiny");
  check_reason(find_vision(text_model, load_model_config(text_model / "config.json")),
               {"config.json: has no vision_config"});
  EditedModel model;
  model.config["vision_config"] = nullptr;
  check_reason(model.find(), {"config.json: has no vision_config"});
}

TEST_CASE("A root without the tower that its config tells of still has its text model") {
  EditedModel model;
  std::erase_if(model.tensors, [](const TensorToWrite& tensor) { return is_vision(tensor.name); });
  check_reason(model.find(), {"model.safetensors: holds no vision tower", "vision_tower"});
  write_file(model.path() / "tokenizer.json", "{}");
  CHECK(open_model(model.path()).config().hidden_size == 96);
  CHECK_THROWS_AS(VisionFiles::open(model.path(), tiny_vision().config()), ModelFileError);
}

TEST_CASE("Tensors that do not fit are named, the first ten") {
  EditedModel model;
  std::erase_if(model.tensors, [](const TensorToWrite& tensor) {
    return tensor.name == "multi_modal_projector.mm_soft_emb_norm.weight";
  });
  model.named("patch_embedding.weight").shape = {48, 14, 14, 3};
  model.named("layers.1.mlp.fc1.bias").dtype = "I16";
  Tensors more = {model.named("post_layernorm.bias"), model.named("post_layernorm.bias")};
  more[0].name = "model.vision_tower.vision_model.post_layernorm.bias";
  more[1].name = "vision_tower.encoder.layers.0.self_attn.q_norm.weight";
  model.tensors.insert(model.tensors.end(), more.begin(), more.end());
  check_reason(model.find(), {"model.safetensors: 5 tensors do not fit config.json's vision_config: ",
                              "missing 'multi_modal_projector.mm_soft_emb_norm.weight' [48]",
                              "patch_embedding.weight' has shape [48, 14, 14, 3], expected [48, 3, 14, 14]",
                              "fc1.bias' has dtype I16, expected BF16, F16 or F32",
                              "surplus 'model.vision_tower.vision_model.post_layernorm.bias', the same as "
                              "'vision_tower.post_layernorm.bias'",
                              "surplus 'vision_tower.encoder.layers.0.self_attn.q_norm.weight'"});

  std::erase_if(model.tensors,
                [](const TensorToWrite& tensor) { return tensor.name.starts_with("vision_tower.encoder."); });
  check_reason(model.find(), {"; and 41 more"});
}

TEST_CASE("A tower of another size, or one that is computed otherwise, is a reason") {
  EditedModel model;
  model.config["vision_config"]["num_hidden_layers"] = 4;
  check_reason(model.find(), {"16 tensors do not fit"});
  model.config["vision_config"]["num_hidden_layers"] = 3;
  model.config["vision_config"]["hidden_act"] = "relu";
  check_reason(model.find(), {"key 'vision_config.hidden_act': is 'relu'"});
}

}  // namespace gemmad
