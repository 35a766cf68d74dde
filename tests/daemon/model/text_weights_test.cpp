#include "daemon/model/text_weights.h"

#include <stdexcept>

#include "kernels/base/float_formats.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

float bf16_at(ConstTensorView tensor, std::int64_t index) {
  return bf16_to_f32(load_u16(tensor.as<std::byte>(), index));
}

}  // namespace

TEST_CASE("Fused weights are their parts on top of each other, converted exactly") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(2);
  const TextWeights weights = load_text_weights(files, *ops, {});
  REQUIRE(weights.layers.size() == 8);
  const LayerWeights& layer = weights.layers[5];
  REQUIRE(layer.qkv.shape == Shape{256 + 2 * 128, 96});
  REQUIRE(layer.gate_up.shape == Shape{2 * 192, 96});
  std::int64_t row = 0;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const ConstTensorView source =
        files.checkpoint().tensor(std::string("layers.5.self_attn.") + part + ".weight").view;
    for (std::int64_t i = 0; i < source.shape.num_elements(); ++i) {
      REQUIRE(layer.qkv.as<float>()[row * 96 + i] == bf16_at(source, i));
    }
    row += source.shape[0];
  }
  const ConstTensorView up = files.checkpoint().tensor("layers.5.mlp.up_proj.weight").view;
  for (std::int64_t i = 0; i < up.shape.num_elements(); ++i) {
    REQUIRE(layer.gate_up.as<float>()[192 * 96 + i] == bf16_at(up, i));
  }
}

TEST_CASE("The table is read where it lies and keeps its file alive") {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  Ops::Table table;
  std::uint64_t loaded_bytes = 0;
  {
    TextWeights weights = load_text_weights(open_model(model_folder("gemma3-tiny")), *ops, {});
    loaded_bytes = weights.size_bytes();
    table = std::move(weights.embedding);
  }
  CHECK(table.view.dtype == DType::kBF16);
  CHECK(table.storage.size_bytes() == 0);
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  CHECK(compare_bits(table.view, files.checkpoint().tensor("embed_tokens.weight").view).ok);
  CHECK(loaded_bytes == 2 * (files.text_size_bytes() - 512 * 96 * 2));  // all but the table, as fp32
}

TEST_CASE("Progress rises to the total and may end the load") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  std::uint64_t last_bytes = 0;
  bool rising = true;
  load_text_weights(files, *ops, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    rising = rising && done_bytes > last_bytes && total_bytes == files.text_size_bytes();
    last_bytes = done_bytes;
  });
  CHECK(rising);
  CHECK(last_bytes == files.text_size_bytes());
  CHECK_THROWS_AS(
      load_text_weights(files, *ops, [](std::uint64_t, std::uint64_t) { throw std::runtime_error("stop"); }),
      std::runtime_error);
}

TEST_CASE("Weights in F32 and F16, at odd addresses, give the same states as in BF16") {
  const std::string dtype = GENERATE("F32", "F16");
  CAPTURE(dtype);
  const ScratchFolder folder;
  for (const char* file : {"config.json", "tokenizer.json"}) {
    std::filesystem::copy(model_folder("gemma3-tiny") / file, folder.path());
  }
  // One odd byte in front: the format gives no alignment.
  std::vector<TensorToWrite> tensors = {{"vision_tower.odd", "U8", {1}, "x"}};
  for (TensorToWrite& tensor : read_tensors(model_folder("gemma3-tiny") / "model.safetensors")) {
    if (!tensor.name.starts_with("language_model.")) continue;
    std::string bytes;
    const auto* data = reinterpret_cast<const std::byte*>(tensor.bytes.data());
    for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) {
      const float value = bf16_to_f32(load_u16(data, static_cast<std::int64_t>(i)));
      if (dtype == "F32") {
        bytes.append(reinterpret_cast<const char*>(&value), 4);
      } else {
        // Only what F16 holds exactly is asked of both: the rest becomes zero.
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::int32_t exponent = static_cast<std::int32_t>(bits >> 23 & 0xff) - 112;
        const bool fits = exponent > 0 && exponent < 31;
        const auto half = static_cast<std::uint16_t>(
            fits ? (bits >> 16 & 0x8000u) | static_cast<std::uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ffu)
                 : 0u);
        bytes.append(reinterpret_cast<const char*>(&half), 2);
      }
    }
    tensor.dtype = dtype;
    tensor.bytes = bytes;
    tensors.push_back(tensor);
  }
  write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));

  Batch batch;
  batch.add(random_prompt(40, 1));
  EncoderTesting bf16(model_folder("gemma3-tiny"));
  EncoderTesting other(folder.path());
  const CollectingSink expected = bf16.encode(batch);
  const CollectingSink actual = other.encode(batch);
  for (std::int64_t index = 0; index < expected.count(); ++index) {
    const Comparison result =
        compare_rows(actual.rows(index, 0, 40), expected.rows(index, 0, 40), dtype == "F32" ? 1e-30 : 1e-2);
    INFO(index << ": " << result.report);
    CHECK(result.ok);
  }
}

}  // namespace gemmad
