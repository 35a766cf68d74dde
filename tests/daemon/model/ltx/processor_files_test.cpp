// Which LTX-2 files are taken, and the bad ones that are refused by name and reason.
#include "daemon/model/ltx/processor_files.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "daemon/model/ltx/processor_tensors.h"
#include "kernels/base/float_formats.h"
#include "tests/daemon/model/ltx/processor_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<TensorToWrite>;

constexpr StateSizes kSizes{96, 9};

FileMetadata metadata_of(const fs::path& file) {
  const MappedFile mapped(file);
  return parse_safetensors_header(mapped.bytes(), file.string()).metadata;
}

bool is_projection(const TensorToWrite& tensor) {
  return tensor.name.starts_with("text_embedding_projection.");
}

/// A checkpoint that a test may damage.
struct EditedFile {
  Tensors tensors;
  FileMetadata metadata;

  explicit EditedFile(const std::string& model)
      : tensors(read_tensors(ltx_file(model + ".safetensors"))),
        metadata(metadata_of(ltx_file(model + ".safetensors"))) {}

  void erase_if(const std::function<bool(const TensorToWrite&)>& condition) {
    std::erase_if(tensors, condition);
  }
  TensorToWrite& named(const std::string& end) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const TensorToWrite& tensor) { return tensor.name.ends_with(end); });
  }
  void change_transformer(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json config = nlohmann::json::parse(metadata.at("config"));
    change(config["transformer"]);
    metadata["config"] = config.dump();
  }
  fs::path write(const fs::path& file) const {
    write_file(file, safetensors_bytes(tensors, metadata));
    return file;
  }
};

/// "accepted", or what was said.
std::string refusal(const fs::path& checkpoint, const std::optional<fs::path>& projections = std::nullopt,
                    const StateSizes& sizes = kSizes) {
  try {
    ProcessorFiles::open(checkpoint, projections, sizes);
  } catch (const ModelFileError& error) {
    return error.what();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  const bool is_there = text.find(part) != std::string::npos;
  CHECK(is_there);
  return is_there;
}

}  // namespace

TEST_CASE("A checkpoint is opened with its config, its pairing and all its tensors") {
  const ProcessorFiles files = ProcessorFiles::open(ltx_file("ltx-v2.safetensors"), std::nullopt, kSizes);
  CHECK(files.config().variant == ProcessorVariant::kV2);
  CHECK(files.config().video == ConnectorConfig{4, 32, 3});
  CHECK(files.config().audio == ConnectorConfig{2, 32, 2});
  CHECK(files.pairing() == GemmaPairing{"2.3.0", std::nullopt});
  CHECK(files.is_on_disk());
  const std::vector<ProcessorTensor> expected = expected_tensors(files.config(), kSizes);
  CHECK(expected.size() == 86);
  CHECK(files.entries().size() == expected.size());
  std::uint64_t total = 0;
  const TensorFile direct(ltx_file("ltx-v2.safetensors"));
  for (const ProcessorTensor& tensor : expected) {
    const ConstTensorView view = files.tensor(tensor.name).view;
    CHECK(compare_bits(view, direct.get(tensor.name)).ok);
    total += view.size_bytes();
  }
  CHECK(files.size_bytes() == total);
  CHECK(read_processor_metadata(ltx_file("ltx-v2.safetensors")).config == files.config());
}

TEST_CASE("The published processors have the tensors that their files have") {
  const auto count = [](ProcessorPreset preset) {
    return expected_tensors(processor_preset(preset), {3840, 49}).size();
  };
  CHECK(count(ProcessorPreset::kLtx2) == 1 + 2 * 29);
  CHECK(count(ProcessorPreset::kLtx2_3) == 4 + 2 * 129);
}

TEST_CASE("Among thousands of other tensors the processor's are found") {
  const ScratchFolder folder;
  EditedFile edited("ltx-v1");
  for (int i = 0; i < 5000; ++i) {
    edited.tensors.push_back({"model.diffusion_model.transformer_blocks." + std::to_string(i) + ".weight",
                              i % 2 == 0 ? "F8_E4M3" : "I8",
                              {2},
                              "xy"});
  }
  CHECK(refusal(edited.write(folder.path() / "a.safetensors")) == "accepted");
}

TEST_CASE("Projections may be in a file of their own, with a text encoder's") {
  const ScratchFolder folder;
  EditedFile connectors("ltx-v2");
  EditedFile projections("ltx-v2");
  connectors.erase_if(is_projection);
  projections.erase_if([](const TensorToWrite& tensor) { return !is_projection(tensor); });
  projections.tensors.push_back({"tokenizer_json", "U8", {2}, "{}"});
  projections.tensors.push_back({"model.embed_tokens.weight", "BF16", {1}, "ab"});
  projections.metadata = {{"format", "pt"}, {"gemma_config", "{}"}};
  const fs::path first = connectors.write(folder.path() / "transformer.safetensors");
  const fs::path second = projections.write(folder.path() / "text_encoder.safetensors");
  const ProcessorFiles files = ProcessorFiles::open(first, second, kSizes);
  const ProcessorFiles whole = ProcessorFiles::open(ltx_file("ltx-v2.safetensors"), std::nullopt, kSizes);
  for (const WeightEntry& entry : whole.entries())
    CHECK(compare_bits(files.tensor(entry.name).view, whole.tensor(entry.name).view).ok);

  const std::string alone = refusal(first);
  says(alone,
       "transformer.safetensors: 4 tensors do not fit its config and the Gemma's: missing "
       "'text_embedding_projection.video_aggregate_embed.weight' [128, 864]; ");
  // The config is in the first.
  says(refusal(second, first), "text_encoder.safetensors: has no 'config' in its metadata");
}

TEST_CASE("What is in both files is taken from the first") {
  const ScratchFolder folder;
  EditedFile other("ltx-v2");
  other.named("video_aggregate_embed.bias").bytes.assign(256, '\0');
  const fs::path second = other.write(folder.path() / "other.safetensors");
  const std::string name = "text_embedding_projection.video_aggregate_embed.bias";
  const ProcessorFiles files = ProcessorFiles::open(ltx_file("ltx-v2.safetensors"), second, kSizes);
  CHECK(compare_bits(files.tensor(name).view, TensorFile(ltx_file("ltx-v2.safetensors")).get(name)).ok);
}

TEST_CASE("Missing and wrong tensors are named, the first ten") {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  EditedFile edited("ltx-v2");
  edited.erase_if([](const TensorToWrite& tensor) { return tensor.name.ends_with("to_k.bias"); });
  TensorToWrite& gate = edited.named("to_gate_logits.weight");
  gate.shape = {64, 2};
  TensorToWrite& norm = edited.named("q_norm.weight");
  norm.dtype = "I16";
  const std::string said = refusal(edited.write(path));
  says(said, "a.safetensors: 7 tensors do not fit its config and the Gemma's: ");
  says(said,
       "missing 'model.diffusion_model.video_embeddings_connector.transformer_1d_blocks.0.attn1.to_k."
       "bias' [128]");
  says(said, "has shape [64, 2], expected [2, 64]");
  says(said, "has dtype I16, expected BF16, F16 or F32");

  EditedFile empty("ltx-v2");
  empty.erase_if([](const TensorToWrite& tensor) { return !is_projection(tensor); });
  const std::string all = refusal(empty.write(path));
  says(all, "82 tensors do not fit");
  says(all, "; and 72 more");
}

TEST_CASE("A Gemma of another size does not fit") {
  const std::string layers = refusal(ltx_file("ltx-v2.safetensors"), std::nullopt, {96, 13});
  says(layers,
       "'text_embedding_projection.video_aggregate_embed.weight' has shape [128, 864], expected [128, "
       "1248]");
  says(refusal(ltx_file("ltx-v1.safetensors"), std::nullopt, {128, 9}),
       "the video connector is 96 wide, the Gemma's hidden states are 128 wide");
}

TEST_CASE("Bad configs in the metadata are refused by key") {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  EditedFile partial("ltx-v2");
  partial.change_transformer([](nlohmann::json& t) { t.erase("caption_proj_input_norm"); });
  says(refusal(partial.write(path)),
       "a.safetensors: key 'config.transformer.caption_proj_input_norm': is missing");
  EditedFile rope("ltx-v2");
  rope.change_transformer([](nlohmann::json& t) { t["rope_type"] = "spiral"; });
  says(refusal(rope.write(path)), "key 'config.transformer.rope_type': is 'spiral'");
  EditedFile none("ltx-v2");
  none.metadata.clear();
  says(refusal(none.write(path)), "a.safetensors: has no 'config' in its metadata");
}

TEST_CASE("Files that are no safetensors, or cut short, are refused") {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  const std::string whole = read_file(ltx_file("ltx-v1.safetensors"));
  says(refusal(path), "a.safetensors");
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{1000}, whole.size() - 1}) {
    CAPTURE(size);
    write_file(path, whole.substr(0, size));
    says(refusal(path), "a.safetensors: ");
  }
  write_file(path, "version https://git-lfs.github.com/spec/v1\n");
  says(refusal(path), "git-LFS pointer");
  says(refusal(ltx_file("ltx-v1.safetensors"), path), "git-LFS pointer");
}

}  // namespace gemmad
