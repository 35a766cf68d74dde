// What the goldens do not cover, against a float64 evaluation: registers that begin again, other head sizes,
// other layouts, hidden states so small that an eps decides.
#include <string>

#include "tests/daemon/model/ltx/processor_reference.h"
#include "tests/daemon/model/ltx/processor_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

// As golden_test.cpp has them; sums here are shorter, and softmax's scores as large.
constexpr double kLimit = 2e-6;
constexpr double kRowLimit = 5e-6;
// An fp32 grid is computed with the same rounding on both sides, so nothing is lost to it.

void check_close(ConstTensorView actual, const ReferenceMatrix& expected, const std::string& what) {
  const std::vector<float> values = rounded(expected);
  const Comparison result = compare_rows(
      actual, {values.data(), DType::kF32, {expected.rows, expected.columns}}, kLimit, kRowLimit);
  INFO(what << ": " << result.report);
  CHECK(result.ok);
}

/// Runs everything of all prompts of these lengths and holds it against the reference.
void check_processor(const ProcessorConfig& config, const StateSizes& sizes,
                     const std::vector<std::int64_t>& lengths, double deviation,
                     std::int64_t sequence_length) {
  const TestProcessor weights(config, sizes, 11);
  const PackedStates states = random_states(sizes, lengths, deviation, 3);
  ProcessorTesting testing(weights, config, {states.offsets().back(), 2, sequence_length}, sizes);
  const std::vector<ProcessorUnit> units = all_units(lengths.size());
  const std::vector<UnitResult> results = testing.run(states, units);
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto [prompt, modality, wants_features, wants_embeddings] = units[u];
    CAPTURE(prompt, static_cast<int>(modality));
    const ReferenceMatrix features = reference_features(weights, config, states, prompt, modality);
    check_close(results[u].features_view(), features, "features");
    check_close(results[u].embeddings_view(),
                reference_embeddings(weights, config, features, modality, sequence_length), "embeddings");
  }
}

ProcessorConfig v1(std::int64_t num_heads, std::int64_t head_dim) {
  ProcessorConfig config;
  config.video = config.audio = {num_heads, head_dim, 2};
  config.has_double_grid = true;
  config.max_pos = 4096;
  return config;
}

ProcessorConfig v2(const ConnectorConfig& video, const ConnectorConfig& audio) {
  ProcessorConfig config;
  config.variant = ProcessorVariant::kV2;
  config.video = video;
  config.audio = audio;
  config.has_gates = true;
  config.has_double_grid = true;
  config.max_pos = 4096;
  return config;
}

}  // namespace

TEST_CASE("Registers begin again behind 128 rows, in place of the rows that a prompt does not fill") {
  const std::int64_t length = GENERATE(256, 384);
  CAPTURE(length);
  check_processor(v2({2, 16, 2}, {1, 16, 1}), {24, 3}, {1, 100, 127, 128, 129, 200, length}, 1, length);
}

TEST_CASE("Heads may be of any even size") {
  const auto [num_heads, head_dim] =
      GENERATE(std::pair{1, 4}, std::pair{5, 6}, std::pair{3, 10}, std::pair{2, 64}, std::pair{1, 128});
  CAPTURE(num_heads, head_dim);
  check_processor(v2({num_heads, head_dim, 2}, {2, 8, 2}), {20, 2}, {3, 77}, 1, 128);
  check_processor(v1(num_heads, head_dim), {num_heads * head_dim, 2}, {3, 77}, 1, 128);
}

TEST_CASE("Either layout of rotary positions takes either grid") {
  ProcessorConfig config = v2({3, 16, 2}, {2, 12, 1});
  config.rope_layout = GENERATE(RopeLayout::kSplit, RopeLayout::kInterleaved);
  config.has_double_grid = GENERATE(false, true);
  config.max_pos = GENERATE(20, 4096);
  CAPTURE(static_cast<int>(config.rope_layout), config.has_double_grid, config.max_pos);
  check_processor(config, {20, 2}, {9, 128}, 1, 128);
}

TEST_CASE("Gates and biases come and go by the config") {
  ProcessorConfig config = v2({3, 16, 2}, {2, 12, 1});
  config.has_gates = GENERATE(false, true);
  config.has_ffn_bias = GENERATE(false, true);
  check_processor(config, {20, 2}, {9}, 1, 128);
  ProcessorConfig first = v1(2, 16);
  first.has_gates = config.has_gates;
  first.has_ffn_bias = config.has_ffn_bias;
  first.audio.num_layers = 1;
  check_processor(first, {32, 2}, {9}, 1, 128);
}

TEST_CASE("Hidden states so small that the eps of their norm decides") {
  check_processor(v2({2, 16, 1}, {1, 16, 1}), {24, 3}, {5, 40}, 1e-3, 128);
  check_processor(v1(2, 16), {32, 3}, {5, 40}, 1e-6, 128);
}

TEST_CASE("The eps of a norm of small hidden states shows") {
  // So that the case above can fail: without an eps the features would not change with their size.
  const ProcessorConfig config = GENERATE(v2({2, 16, 1}, {1, 16, 1}), v1(2, 16));
  const StateSizes sizes{32, 3};
  const double deviation = config.variant == ProcessorVariant::kV1 ? 1e-6 : 1e-3;
  const TestProcessor weights(config, sizes, 11);
  const auto features = [&](double size) {
    return rounded(
        reference_features(weights, config, random_states(sizes, {40}, size, 3), 0, Modality::kVideo));
  };
  const std::vector<float> small = features(deviation);
  const std::vector<float> large = features(1);
  const Shape shape{40, 32};
  CHECK(
      compare_rows({small.data(), DType::kF32, shape}, {large.data(), DType::kF32, shape}, 0.02).share_used >
      1);
}

}  // namespace gemmad
