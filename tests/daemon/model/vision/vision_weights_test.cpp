// Where a tower's weights lie on the device, and those that are made without files.
#include "daemon/model/vision/vision_weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "config/model_presets.h"
#include "daemon/model/vision/random_vision.h"
#include "daemon/model/vision/vision_tensors.h"
#include "kernels/base/float_formats.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/vision/vision_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/limited_ops.h"

namespace gemmad {
namespace {

constexpr HeadLayout kPadded{4, 4, 16};  // of 12

/// Of a BF16 tensor.
float element(const HostTensor& tensor, std::int64_t index) {
  return bf16_to_f32(load_u16(tensor.view.as<std::byte>(), index));
}

/// How many elements of `actual` [rows, columns] F32 are not `expected`(row, column).
std::int64_t count_differing(const ConstMatrixView& actual,
                             const std::function<float(std::int64_t, std::int64_t)>& expected) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < actual.rows; ++row) {
    for (std::int64_t column = 0; column < actual.columns; ++column) {
      if (actual.as<float>()[row * actual.row_stride + column] != expected(row, column)) ++count;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("Queries, keys and values of a head lie together, zeros behind each, and so do their biases") {
  const VisionFiles files = tiny_vision();
  const auto ops = make_cpu_ops(1);
  const VisionWeights weights = load_vision_weights(files, files.config(), kPadded, *ops, {});
  REQUIRE(weights.layers.size() == 3);
  const VisionLayer& layer = weights.layers[1];
  const std::string prefix = vision_layer_prefix(1) + "self_attn.";
  CHECK(layer.qkv.shape == Shape{192, 48});
  CHECK(layer.qkv_bias.shape == Shape{192});
  const ConstTensorView bias_column{layer.qkv_bias.data, DType::kF32, {192, 1}};
  for (std::int64_t head = 0; head < 4; ++head) {
    const std::pair<const char*, std::int64_t> parts[] = {{"q_proj", kPadded.q_column(head)},
                                                          {"k_proj", kPadded.k_column(head)},
                                                          {"v_proj", kPadded.v_column(head)}};
    for (const auto& [name, first] : parts) {
      const HostTensor weight = files.tensor(prefix + name + ".weight");
      const HostTensor bias = files.tensor(prefix + name + ".bias");
      CHECK(count_differing(ConstMatrixView(layer.qkv).row_range(first, first + 16),
                            [&](std::int64_t row, std::int64_t column) {
                              return row < 12 ? element(weight, (head * 12 + row) * 48 + column) : 0;
                            }) == 0);
      CHECK(count_differing(ConstMatrixView(bias_column).row_range(first, first + 16),
                            [&](std::int64_t row, std::int64_t) {
                              return row < 12 ? element(bias, head * 12 + row) : 0;
                            }) == 0);
    }
  }
  const HostTensor out = files.tensor(prefix + "out_proj.weight");
  CHECK(layer.out.shape == Shape{48, 64});
  CHECK(count_differing(layer.out, [&](std::int64_t row, std::int64_t column) {
          return column % 16 < 12 ? element(out, row * 48 + column / 16 * 12 + column % 16) : 0;
        }) == 0);
}

TEST_CASE("Patches' weights are filled up, the projector's are turned over") {
  const VisionFiles files = tiny_vision();
  const auto ops = make_cpu_ops(1);
  const VisionWeights weights = load_vision_weights(files, files.config(), kPadded, *ops, {});
  const HostTensor patch = files.tensor("vision_tower.embeddings.patch_embedding.weight");
  CHECK(weights.patch.shape == Shape{48, 592});
  CHECK(count_differing(weights.patch, [&](std::int64_t row, std::int64_t column) {
          return column < 588 ? element(patch, row * 588 + column) : 0;
        }) == 0);
  const HostTensor projector = files.tensor("multi_modal_projector.mm_input_projection_weight");
  CHECK(weights.projector.shape == Shape{96, 48});
  CHECK(count_differing(weights.projector, [&](std::int64_t row, std::int64_t column) {
          return element(projector, column * 96 + row);
        }) == 0);
}

TEST_CASE("The bytes of weights are known before they are there") {
  const std::int64_t head_dim = GENERATE(12, 16, 64);
  const VisionFiles files = tiny_vision();
  const HeadLayout heads{4, 4, head_dim};
  MemoryLimit limit;
  const auto ops = make_limited_ops(limit);
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  const VisionWeights weights = load_vision_weights(files, files.config(), heads, *ops,
                                                    [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                                                      CHECK(done_bytes >= last);
                                                      last = done_bytes;
                                                      total = total_bytes;
                                                    });
  const std::uint64_t expected = VisionWeights::size_bytes(files.config(), heads, DType::kF32);
  CHECK(weights.memory.size_bytes() == expected);
  CHECK(limit.used_bytes == expected);
  CHECK(last == expected);
  CHECK(total == expected);
  CHECK(weights.memory.source_bytes == files.size_bytes());
}

TEST_CASE("The published tower takes the bytes that it is known for") {
  const VisionConfig config = preset_vision_config(Preset::kGemma3_12b).value();
  // Its parameters, and 4 columns of zeros in the weight of the patches.
  CHECK(VisionWeights::size_bytes(config, {16, 16, 72}, DType::kBF16) ==
        2 * (416'866'032 + 4'424'832 + 4 * 1152));
  CHECK_FALSE(preset_vision_config(Preset::kGemma3_1b).has_value());
  CHECK(preset_vision_config(Preset::kGemma3_27b)->text_hidden_size == 5376);
}

TEST_CASE("A load that is given up leaves nothing") {
  const VisionFiles files = tiny_vision();
  MemoryLimit limit;
  const auto ops = make_limited_ops(limit);
  const auto give_up = [](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    if (done_bytes > total_bytes / 2) throw std::runtime_error("enough");
  };
  CHECK_THROWS_AS(load_vision_weights(files, files.config(), kPadded, *ops, give_up), std::runtime_error);
  CHECK(limit.used_bytes == 0);
  limit.most_bytes = 100'000;
  CHECK_THROWS_AS(load_vision_weights(files, files.config(), kPadded, *ops, {}), std::bad_alloc);
  CHECK(limit.used_bytes == 0);
}

TEST_CASE("A random tower depends on seed, name and place alone") {
  const VisionConfig config = tiny_vision().config();
  const RandomVision source(config, 7, 1);
  const RandomVision threaded(config, 7, 8);
  const RandomVision other(config, 8, 1);
  CHECK(source.entries().size() == expected_tensors(config).size());
  std::uint64_t total = 0;
  for (const WeightEntry& entry : source.entries()) {
    const HostTensor whole = source.tensor(entry.name);
    CHECK(whole.view.shape == entry.shape);
    CHECK(compare_bits(whole.view, threaded.tensor(entry.name).view).ok);
    CHECK_FALSE(compare_bits(whole.view, other.tensor(entry.name).view).ok);
    std::vector<std::byte> part(20);
    source.read(entry.name, 30, part);
    CHECK(std::equal(part.begin(), part.end(), whole.view.as<std::byte>() + 30));
    total += whole.view.size_bytes();
  }
  CHECK(source.size_bytes() == total);
  CHECK_THROWS_AS(source.tensor("norm.weight"), ModelFileError);
}

TEST_CASE("Weights of a random tower's layer norms are around 1, all else is small") {
  const RandomVision source(tiny_vision().config(), 7, 1);
  const auto mean = [&](const std::string& name) {
    const HostTensor tensor = source.tensor(name);
    double sum = 0;
    for (std::int64_t i = 0; i < tensor.view.shape.num_elements(); ++i)
      sum += element(tensor, i);
    return sum / static_cast<double>(tensor.view.shape.num_elements());
  };
  // Means of 48 values and more of deviation 0.02: within 0.003 in two cases of three.
  for (const char* name : {"layer_norm1.weight", "layer_norm2.weight"})
    CHECK(std::abs(mean(vision_layer_prefix(2) + name) - 1) < 0.012);
  CHECK(std::abs(mean("vision_tower.post_layernorm.weight") - 1) < 0.012);
  for (const char* name : {"layer_norm1.bias", "mlp.fc1.weight", "self_attn.q_proj.weight"})
    CHECK(std::abs(mean(vision_layer_prefix(2) + name)) < 0.012);
  CHECK(std::abs(mean("multi_modal_projector.mm_soft_emb_norm.weight")) < 0.012);
}

}  // namespace gemmad
