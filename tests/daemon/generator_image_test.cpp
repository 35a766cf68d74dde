// A prompt with an image, over ranks, against goldens computed in float64 by an independent implementation.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "config/vision_config.h"
#include "daemon/generator.h"
#include "daemon/image/resize.h"
#include "daemon/model/vision/vision_files.h"
#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::string kModel = GEMMAD_TEST_DATA "/models/gemma3-tiny/";

Tokens ids_of(const ConstTensorView& tensor) {
  return {tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + tensor.shape.num_elements()};
}

/// The golden's prompt, without its padding, with its image, which the processor alone has resized.
SequenceStart golden_start(const TensorFile& golden, const VisionConfig& vision) {
  const ConstTensorView image = golden.get("image");
  RgbImage picture{image.shape[0], image.shape[1], {}};
  picture.pixels.assign(image.as<std::uint8_t>(), image.as<std::uint8_t>() + image.shape.num_elements());
  SequenceStart start;
  start.id = 1;
  start.sampling.greedy = true;
  const Tokens mask = ids_of(golden.get("attention_mask"));
  const auto num_pads = std::find(mask.begin(), mask.end(), 1) - mask.begin();
  const Tokens padded = ids_of(golden.get("input_ids"));
  start.ids.assign(padded.begin() + num_pads, padded.end());
  const Tokens types = ids_of(golden.get("token_type_ids"));
  const auto first = std::find(types.begin(), types.end(), 1) - types.begin() - num_pads;
  start.image = PromptImage{first, resize_pillow(picture, vision.image_size, vision.image_size).pixels};
  return start;
}

/// As rank 0 hears them.
Tokens continued(int num_ranks, const ShardSettings& settings, bool among_others) {
  Tokens heard;
  run_ranks(num_ranks, [&](Bootstrap& bootstrap) {
    const TensorFile golden(kModel + "golden-image.safetensors");
    const std::size_t count = static_cast<std::size_t>(golden.get("generate.tokens").shape[1]);
    TestRank rank(bootstrap);
    const auto deployment = rank.deploy(settings);
    const TextConfig config = rank.files().config();
    const auto files = find_vision(kModel, config).files;
    require(files != nullptr, "the model has eyes");
    const VisionSource vision{files->config(), files};
    const DeploymentParts parts = rank.parts();
    Generator generator({bootstrap, parts.ops, config, &vision, 2, 256, TestRank::kTimeout}, *deployment);
    GenerationOrder order{{}, {golden_start(golden, vision.config)}};
    if (among_others) {
      SequenceStart other;
      other.id = 2;
      other.ids = Tokens(50, 7);
      order.begins.push_back(other);
    }
    Tokens tokens;
    while (tokens.size() < count) {
      const StepReport report = generator.step(order);
      require(report.error.empty(), "the step goes well: " + report.error);
      order = {};
      for (const SequenceNews& news : report.news) {
        if (news.id == 1 && news.kind == SequenceNews::Kind::kToken) tokens.push_back(news.token);
      }
    }
    if (rank.number() == 0) heard = tokens;
  });
  return heard;
}

TEST_CASE("Greedy tokens behind an image are the goldens' in every mode, alone and among others") {
  const TensorFile golden(kModel + "golden-image.safetensors");
  const int num_ranks = GENERATE(1, 2);
  const bool among_others = GENERATE(false, true);
  const auto settings =
      GENERATE(as<ShardSettings>{}, ShardSettings{Mode::kBatchParallel, Strategy::kTensor, 0, {}},
               ShardSettings{Mode::kSharded, Strategy::kTensor, 0, {}},
               ShardSettings{Mode::kSharded, Strategy::kLayer, 0, {}});
  CAPTURE(num_ranks, among_others, static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  CHECK(continued(num_ranks, settings, among_others) == ids_of(golden.get("generate.tokens")));
}

}  // namespace
}  // namespace gemmad
