#include "daemon/model/ltx/embeddings_processor.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/ltx/processor_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

// Runs of the same prompt that differ in the shapes of their products: a few roundings each, as in
// golden_test.cpp.
constexpr double kLimit = 5e-6;
constexpr std::int64_t kLength = 128;
constexpr StateSizes kSizes{32, 5};
const std::vector<std::int64_t> kLengths = {1, 40, 128, 7, 64};

ProcessorConfig config_of(ProcessorVariant variant) {
  ProcessorConfig config;
  config.variant = variant;
  config.video = {2, 16, 2};
  config.audio = variant == ProcessorVariant::kV1 ? config.video : ConnectorConfig{3, 8, 1};
  config.has_gates = variant == ProcessorVariant::kV2;
  config.has_double_grid = true;
  config.max_pos = 4096;
  return config;
}

/// A processor, what it takes, and what comes when everything is asked of each prompt alone.
class Case {
 public:
  explicit Case(ProcessorVariant variant, std::int64_t max_units_at_once = 4)
      : config(config_of(variant)),
        weights(config, kSizes, 1),
        states(random_states(kSizes, kLengths, 1, 2)),
        testing(weights, config, {240, max_units_at_once, kLength}, kSizes) {
    for (std::size_t prompt = 0; prompt < kLengths.size(); ++prompt)
      alone_.push_back(testing.run(states.only(prompt), all_units(1)));
  }

  /// Every unit's results, as far as they are wanted, are those of its prompt alone.
  void check_equal_alone(const std::vector<ProcessorUnit>& units,
                         const std::vector<UnitResult>& results) const {
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto& [prompt, modality, wants_features, wants_embeddings] = units[u];
      CAPTURE(u, prompt, static_cast<int>(modality));
      const UnitResult& alone = alone_[prompt][static_cast<std::size_t>(modality)];
      if (wants_features) check(results[u].features_view(), alone.features_view());
      CHECK(results[u].embeddings.empty() != wants_embeddings);
      if (wants_embeddings) check(results[u].embeddings_view(), alone.embeddings_view());
    }
  }

  ProcessorConfig config;
  TestProcessor weights;
  PackedStates states;
  ProcessorTesting testing;

 private:
  static void check(ConstTensorView actual, ConstTensorView expected) {
    const Comparison result = compare_rows(actual, expected, kLimit);
    INFO(result.report);
    CHECK(result.ok);
  }

  std::vector<std::vector<UnitResult>> alone_;  // by prompt, then modality
};

constexpr auto kVideo = Modality::kVideo;
constexpr auto kAudio = Modality::kAudio;
const auto kVariants = {ProcessorVariant::kV1, ProcessorVariant::kV2};

void check_same_bytes(const std::vector<UnitResult>& actual, const std::vector<UnitResult>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t u = 0; u < actual.size(); ++u) {
    CAPTURE(u);
    CHECK(actual[u].features == expected[u].features);
    CHECK(actual[u].embeddings == expected[u].embeddings);
  }
}

}  // namespace

TEST_CASE("A batch of prompts equals each prompt alone") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  Case c(variant);
  const std::vector<ProcessorUnit> units = all_units(kLengths.size());
  c.check_equal_alone(units, c.testing.run(c.states, units));
}

TEST_CASE("Units come in any order and want what they want") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  const std::vector<ProcessorUnit> units = GENERATE(
      std::vector<ProcessorUnit>{{3, kAudio, true, true}},
      std::vector<ProcessorUnit>{{4, kVideo, true, false}, {0, kVideo, false, true}},
      // Audio of another order than video, and of a prompt that video is not wanted of.
      std::vector<ProcessorUnit>{{4, kVideo, true, true},
                                 {1, kAudio, true, false},
                                 {3, kAudio, false, true},
                                 {0, kVideo, false, true},
                                 {4, kAudio, true, true}},
      // Audio of the first of video's prompts only.
      std::vector<ProcessorUnit>{{2, kVideo, true, false}, {2, kAudio, true, true}, {1, kVideo, false, true}},
      // Embeddings of units with others between them.
      std::vector<ProcessorUnit>{{0, kVideo, true, true},
                                 {1, kVideo, true, false},
                                 {2, kVideo, false, true},
                                 {3, kVideo, true, false},
                                 {4, kVideo, false, true}});
  Case c(variant);
  c.check_equal_alone(units, c.testing.run(c.states, units));
}

TEST_CASE("Prompts that nobody wants are not looked at") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  Case c(variant);
  PackedStates states = c.states;
  for (const std::size_t prompt : {0, 2, 4})
    states.fill(prompt, std::numeric_limits<float>::quiet_NaN());
  const std::vector<ProcessorUnit> units = {{1, kVideo, true, true}, {3, kAudio, true, true}};
  c.check_equal_alone(units, c.testing.run(states, units));
}

TEST_CASE("More units than fit take turns, with the same results") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  const std::int64_t at_once = GENERATE(1, 2, 3, 100);
  Case c(variant, at_once);
  const std::vector<ProcessorUnit> units = all_units(kLengths.size());
  c.testing.begin(c.states, units);
  c.testing.add_states(c.states);
  const CollectingProcessorSink sink = c.testing.finish();
  c.check_equal_alone(units, sink.results());
  std::size_t total = 0;
  for (const std::size_t turn : sink.turns()) {
    CHECK(turn <= static_cast<std::size_t>(at_once));
    total += turn;
  }
  CHECK(total == units.size());
  CHECK(sink.turns().size() == 2 * ((kLengths.size() - 1) / static_cast<std::size_t>(at_once) + 1));
}

TEST_CASE("The same pass gives the same bytes, and nothing of the pass before stays") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  Case c(variant);
  const std::vector<ProcessorUnit> units = all_units(kLengths.size());
  const std::vector<UnitResult> first = c.testing.run(c.states, units);
  // A pass that is given up.
  c.testing.begin(random_states(kSizes, {30}, 5, 9), all_units(1));
  c.testing.add_states(random_states(kSizes, {30}, 5, 9));
  check_same_bytes(c.testing.run(c.states, units), first);
}

TEST_CASE("Stages with some of the states each give the bytes of one") {
  const ProcessorVariant variant = GENERATE(values(kVariants));
  const std::vector<std::int64_t> ends =
      GENERATE(std::vector<std::int64_t>{5}, std::vector<std::int64_t>{1, 5},
               std::vector<std::int64_t>{2, 2, 5}, std::vector<std::int64_t>{1, 3, 5, 5});
  Case c(variant);
  const std::vector<ProcessorUnit> units = {
      {4, kVideo, true, true}, {1, kAudio, true, true}, {0, kVideo, true, true}, {4, kAudio, true, true}};
  const std::vector<UnitResult> expected = c.testing.run(c.states, units);

  std::vector<std::vector<float>> sums;
  std::int64_t begin = 0;
  for (std::size_t stage = 0; stage < ends.size(); ++stage) {
    const bool is_last = stage + 1 == ends.size();
    const ProcessorShare share{{begin, ends[stage]}, is_last};
    begin = ends[stage];
    ProcessorTesting testing(c.weights, c.config, {240, 4, kLength}, kSizes, share, make_cpu_ops(2));
    testing.begin(c.states, units, stage > 0);
    const std::vector<TensorView> own = testing.processor().sums();
    REQUIRE(own.size() == c.config.num_projections());
    for (std::size_t i = 0; i < sums.size(); ++i)
      std::copy(sums[i].begin(), sums[i].end(), own[i].as<float>());
    testing.add_states(c.states);
    sums.clear();
    for (const TensorView& sum : testing.processor().sums())
      sums.emplace_back(sum.as<float>(), sum.as<float>() + sum.shape.num_elements());
    if (is_last) check_same_bytes(testing.finish().results(), expected);
  }
}

TEST_CASE("Only the last stage finishes, and only with something added") {
  Case c(ProcessorVariant::kV2);
  CollectingProcessorSink sink(c.testing.ops(), {}, {}, kLength);
  c.testing.begin(c.states, all_units(1));
  CHECK_THROWS_AS(c.testing.processor().finish(sink), std::logic_error);
  ProcessorTesting first(c.weights, c.config, {240, 4, kLength}, kSizes, {{0, 2}, false}, make_cpu_ops(1));
  first.begin(c.states, all_units(1));
  first.add_states(c.states);
  CHECK_THROWS_AS(first.processor().finish(sink), std::logic_error);
  CHECK_THROWS_AS(first.processor().add_state(2, c.states.state(2)), std::out_of_range);
}

TEST_CASE("A pass without units hands out nothing") {
  Case c(GENERATE(values(kVariants)));
  CHECK(c.testing.run(c.states, {}).empty());
}

TEST_CASE("Bad passes are refused and leave the processor usable") {
  Case c(GENERATE(values(kVariants)));
  EmbeddingsProcessor& processor = c.testing.processor();
  const auto refused = [&](const std::vector<std::int64_t>& offsets,
                           const std::vector<ProcessorUnit>& units) {
    try {
      processor.begin(offsets, units, false);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const ProcessorUnit unit{0, kVideo, true, true};
  CHECK(refused({}, {}).find("must begin with 0") != std::string::npos);
  CHECK(refused({1, 2}, {unit}).find("must begin with 0") != std::string::npos);
  CHECK(refused({0, 3, 3}, {unit}).find("prompt 1 of a pass is empty") != std::string::npos);
  CHECK(refused({0, 5, 3}, {unit}).find("prompt 1 of a pass is empty") != std::string::npos);
  CHECK(refused({0, 3}, {unit, {1, kVideo, true, true}}).find("unit 1 of a pass is of prompt 1 of 1") !=
        std::string::npos);
  CHECK(refused({0, 3}, {{0, kVideo, false, false}}).find("wants nothing") != std::string::npos);
  CHECK(refused({0, 3}, {unit, {0, kVideo, true, false}}).find("unit 1 of a pass is there twice") !=
        std::string::npos);
  CHECK(refused({0, 129}, {unit}).find("129 rows, the limit is 128") != std::string::npos);
  CHECK(refused({0, 129, 130}, {{1, kVideo, true, true}}) == "accepted");
  CHECK(refused({0, 100, 241}, {unit}).find("241 tokens, the limit is 240") != std::string::npos);
  CHECK(refused({0, 100, 240}, {unit}) == "accepted");
  CHECK_THROWS_AS(processor.add_state(5, c.states.state(4)), std::out_of_range);
  CHECK_THROWS_AS(processor.add_state(-1, c.states.state(4)), std::out_of_range);
  CHECK_THROWS_AS(processor.add_state(0, c.states.state(0, 1)), std::invalid_argument);
  const std::vector<ProcessorUnit> units = all_units(kLengths.size());
  c.check_equal_alone(units, c.testing.run(c.states, units));
}

TEST_CASE("A sink that throws ends the pass and leaves the processor usable") {
  class ThrowingSink final : public ProcessorSink {
   public:
    void features(Modality, std::span<const std::size_t>, ConstTensorView, const Moment&) override {}
    void embeddings(Modality, std::span<const std::size_t>, ConstTensorView, const Moment&) override {
      throw std::runtime_error("enough");
    }
  };
  Case c(GENERATE(values(kVariants)));
  const std::vector<ProcessorUnit> units = all_units(kLengths.size());
  c.testing.begin(c.states, units);
  c.testing.add_states(c.states);
  ThrowingSink sink;
  CHECK_THROWS_AS(c.testing.processor().finish(sink), std::runtime_error);
  c.check_equal_alone(units, c.testing.run(c.states, units));
}

}  // namespace gemmad
