#include "daemon/model/text_weights.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

TextWeights load_whole(const ModelFiles& files, Ops& ops, const LoadProgress& progress = {}) {
  return load_text_weights(*files.checkpoint(), files.config(), whole_model(files.config(), 0), ops,
                           progress);
}

/// Which row of which projection stands in each row of a fused one.
struct RowSource {
  const char* projection;
  std::int64_t row;
};

std::vector<RowSource> head_rows(const TextConfig& config) {
  std::vector<RowSource> rows;
  const std::int64_t queries = config.num_heads / config.num_kv_heads;
  const auto add = [&](const char* projection, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * config.head_dim; row < end * config.head_dim; ++row)
      rows.push_back({projection, row});
  };
  for (std::int64_t kv_head = 0; kv_head < config.num_kv_heads; ++kv_head) {
    add("self_attn.q_proj", kv_head * queries, (kv_head + 1) * queries);
    add("self_attn.k_proj", kv_head, kv_head + 1);
    add("self_attn.v_proj", kv_head, kv_head + 1);
  }
  return rows;
}

std::vector<RowSource> ffn_rows(const TextConfig& config) {
  std::vector<RowSource> rows;
  const std::int64_t block = ffn_block(config);
  for (std::int64_t first = 0; first < config.intermediate_size; first += block) {
    for (const char* projection : {"mlp.gate_proj", "mlp.up_proj"}) {
      for (std::int64_t row = first; row < first + block; ++row)
        rows.push_back({projection, row});
    }
  }
  return rows;
}

/// All rows of `fused` are those of the checkpoint's BF16, exactly.
void check_rows(const ModelFiles& files, const ConstMatrixView& fused, const std::vector<RowSource>& rows) {
  REQUIRE(fused.rows == static_cast<std::int64_t>(rows.size()));
  for (std::int64_t r = 0; r < fused.rows; ++r) {
    const RowSource& source = rows[static_cast<std::size_t>(r)];
    const HostTensor tensor =
        files.checkpoint()->tensor(std::string("layers.5.") + source.projection + ".weight");
    for (std::int64_t i = 0; i < fused.columns; ++i) {
      if (fused.as<float>()[r * fused.row_stride + i] == bf16_at(tensor.view, source.row * fused.columns + i))
        continue;
      CAPTURE(r, i, source.projection, source.row);
      REQUIRE(false);
    }
  }
}

}  // namespace

TEST_CASE("Heads are fused kv head by kv head: its queries, its key, its value, converted exactly") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(2);
  const TextWeights weights = load_whole(files, *ops);
  REQUIRE(weights.layers.size() == 8);
  REQUIRE(weights.layers[5].qkv.size() == 1);
  check_rows(files, weights.layers[5].qkv.front(), head_rows(files.config()));
}

TEST_CASE("Gate and up are fused block by block, converted exactly") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(2);
  const TextWeights weights = load_whole(files, *ops);
  CHECK(weights.ffn_block == ffn_block(files.config()));
  check_rows(files, weights.layers[5].gate_up, ffn_rows(files.config()));
}

TEST_CASE("The table is read where it lies and keeps its file alive") {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  std::shared_ptr<const Ops::Table> table;
  std::uint64_t loaded_bytes = 0;
  {
    TextWeights weights = load_whole(open_model(model_folder("gemma3-tiny")), *ops);
    loaded_bytes = weights.size_bytes();
    table = std::move(weights.embedding);
  }
  CHECK(table->view.dtype == DType::kBF16);
  CHECK(table->storage.size_bytes() == 0);
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  CHECK(compare_bits(table->view, files.checkpoint()->tensor("embed_tokens.weight").view).ok);
  CHECK(loaded_bytes == 2 * (files.checkpoint()->size_bytes() - 512 * 96 * 2));  // all but it, as fp32
}

TEST_CASE("Progress rises to the bytes of device memory") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  std::uint64_t last_bytes = 0;
  std::uint64_t last_total = 0;
  bool rising = true;
  const TextWeights weights =
      load_whole(files, *ops, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
        rising = rising && done_bytes > last_bytes && (last_total == 0 || total_bytes == last_total);
        last_bytes = done_bytes;
        last_total = total_bytes;
      });
  CHECK(rising);
  CHECK(last_bytes == weights.size_bytes());
  CHECK(last_total == weights.size_bytes());
}

TEST_CASE("Progress may end the load") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  CHECK_THROWS_AS(
      load_whole(files, *ops, [](std::uint64_t, std::uint64_t) { throw std::runtime_error("stop"); }),
      std::runtime_error);
}

TEST_CASE("The whole model is taken from its source once") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  CAPTURE(model);
  const ModelFiles files = open_model(model_folder(model));
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  CHECK(load_whole(files, *ops).memory.source_bytes == files.checkpoint()->size_bytes());
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

  PromptBatch batch;
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
