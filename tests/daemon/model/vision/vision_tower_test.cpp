// Image features against those that Hugging Face computed in float64, and how a tower is used.
#include "daemon/model/vision/vision_tower.h"

#include <new>
#include <stdexcept>

#include "daemon/model/vision/random_vision.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/daemon/model/vision/vision_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/limited_ops.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

// Relative L2 error of the whole and of each row. A plain fp32 computation is off by 3e-7 in the worst row,
// the reference itself by 1e-7; without its eps the projector's norm costs 9e-7, the layer norms cost 2e-6,
// and any other deviation that is known costs 1e-4 or more.
constexpr double kLimit = 7e-7;

/// A tower of 8 layers: three steps, the last of two.
VisionConfig deep_config() {
  VisionConfig config = tiny_vision().config();
  config.num_layers = 8;
  return config;
}

void check_bits(const HostRows& actual, const HostRows& expected) {
  const Comparison result = compare_bits(actual.view(), expected.view());
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace

TEST_CASE("Image features match Hugging Face's, whatever width the heads are filled up to") {
  const std::int64_t padded_head_dim = GENERATE(12, 16, 64);
  CAPTURE(padded_head_dim);
  const VisionFiles files = tiny_vision();
  const TensorFile golden(model_folder("gemma3-tiny") / "golden-image.safetensors");
  VisionTesting testing(files, files.config(), padded_head_dim);
  const HostRows patches =
      patches_of_pixels(golden.get("pixel_values.Gemma3ImageProcessorPil"), files.config());
  const HostRows features = testing.run(patches);
  const Comparison result = compare_rows(features.view(), golden.get("image_features"), kLimit);
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("Heads are filled up to what the device asks for") {
  const VisionFiles files = tiny_vision();
  VisionTesting testing(files, files.config(), make_cpu_ops(1));
  CHECK(testing.tower().weights().heads.head_dim == testing.ops().padded_head_dim(12));
  CHECK(testing.tower().weights().heads.num_heads == 4);
  CHECK(testing.tower().weights().heads.num_kv_heads == 4);
}

TEST_CASE("A step is three layers' work, the last one what is left and the projector") {
  const VisionConfig config = deep_config();
  const RandomVision source(config, 5, 1);
  VisionTesting testing(source, config, 12);
  VisionTower& tower = testing.tower();
  CHECK_THROWS_AS(tower.step(), std::logic_error);
  CHECK_THROWS_AS(tower.features(), std::logic_error);
  tower.begin(random_patches(config, 1).view());
  CHECK_FALSE(tower.step());
  CHECK_THROWS_AS(tower.features(), std::logic_error);
  CHECK_FALSE(tower.step());
  CHECK(tower.step());
  CHECK(tower.features().shape == Shape{4, 96});
  CHECK_THROWS_AS(tower.step(), std::logic_error);
  CHECK(tower.features().data != nullptr);
}

TEST_CASE("An image given up or done leaves nothing to the next") {
  const VisionConfig config = deep_config();
  const RandomVision source(config, 5, 1);
  const HostRows first = random_patches(config, 1);
  const HostRows second = random_patches(config, 2);
  const HostRows expected = VisionTesting(source, config, 12).run(second);

  VisionTesting testing(source, config, 12);
  CHECK_FALSE(compare_bits(testing.run(first).view(), expected.view()).ok);
  check_bits(testing.run(second), expected);
  testing.tower().begin(first.view());
  testing.tower().step();
  check_bits(testing.run(second), expected);
  testing.tower().begin(first.view());
  CHECK_THROWS_AS(testing.tower().features(), std::logic_error);
}

TEST_CASE("Towers share their weights") {
  const VisionConfig config = deep_config();
  const RandomVision source(config, 5, 1);
  VisionTesting testing(source, config, 12);
  const HostRows patches = random_patches(config, 1);
  const HostRows expected = testing.run(patches);
  VisionTower other(config, testing.tower().weights(), testing.ops());
  other.begin(patches.view());
  while (!other.step()) {
  }
  const ConstTensorView features = other.features();  // on the CPU, so in the host's memory
  CHECK(compare_bits(features, expected.view()).ok);
}

TEST_CASE("Patches of another shape or type are refused") {
  const VisionFiles files = tiny_vision();
  VisionTesting testing(files, files.config(), 12);
  HostRows patches = random_patches(files.config(), 1);
  patches.shape = {8, 2 * 588};
  CHECK_THROWS_AS(testing.tower().begin(patches.view()), std::invalid_argument);
  patches.shape = {16, 588};
  ConstTensorView view = patches.view();
  view.dtype = DType::kI32;
  CHECK_THROWS_AS(testing.tower().begin(view), std::invalid_argument);
}

TEST_CASE("The memory that a tower works in is known before it is there, and is all that it takes") {
  const VisionFiles files = tiny_vision();
  MemoryLimit limit;
  const auto ops = make_limited_ops(limit);
  const HeadLayout heads = vision_heads(files.config(), *ops);
  const VisionWeights weights = load_vision_weights(files, files.config(), heads, *ops, {});
  const std::size_t before = limit.used_bytes;
  VisionTower tower(files.config(), weights, *ops);
  CHECK(limit.used_bytes - before == VisionTower::size_bytes(files.config(), *ops));
  limit.most_bytes = limit.used_bytes;
  tower.begin(random_patches(files.config(), 1).view());
  CHECK(tower.step());
  CHECK_THROWS_AS(VisionTower(files.config(), weights, *ops), std::bad_alloc);
}

}  // namespace gemmad
