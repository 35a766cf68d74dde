// Continuing sequences against goldens computed in float64 by an independent implementation.
#include <string>

#include "tests/daemon/model/generation/decoder_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

// Relative L2 error of each row of logits: the bound of hidden states (golden_test.cpp). The last state's is
// 2e-6 and the tied head adds a dot product over 96 channels, which is as exact.
constexpr double kLimit = 2e-5;

std::vector<std::int32_t> ids_of(const ConstTensorView& tensor) {
  return {tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + tensor.shape.num_elements()};
}

/// Continues the golden's prompt by its own greedy tokens, and checks the logits of each step.
void check_golden(DecoderTesting& testing, const std::string& model, std::int32_t slot) {
  const TensorFile golden(model_folder(model) / "golden.safetensors");
  const std::vector<std::int32_t> prompt = ids_of(golden.get("generate.prompt"));
  const std::vector<std::int32_t> tokens = ids_of(golden.get("generate.tokens"));
  const ConstTensorView logits = golden.get("generate.logits");
  const std::int64_t vocab = logits.shape[1];
  testing.prefill(slot, std::span(prompt).first(prompt.size() - 1));
  std::int32_t last = prompt.back();
  for (std::size_t step = 0; step < tokens.size(); ++step) {
    const auto position = static_cast<std::int32_t>(prompt.size() + step - 1);
    const std::vector<float> actual = testing.decode({{last, slot, position, position + 1}}).front();
    const ConstTensorView expected{
        logits.as<float>() + static_cast<std::int64_t>(step) * vocab, DType::kF32, {1, vocab}};
    const Comparison result = compare_rows({actual.data(), DType::kF32, {1, vocab}}, expected, kLimit);
    INFO("step " << step << ": " << result.report);
    REQUIRE(result.ok);
    last = greedy(actual);
    REQUIRE(last == tokens[step]);
  }
}

TEST_CASE("Logits and greedy tokens match the goldens past the window, whatever the chunks of the prompt") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  const std::int64_t chunk_rows = GENERATE(1, 7, 16, 64);
  CAPTURE(model, chunk_rows);
  DecoderTesting testing(model, 1, chunk_rows);
  check_golden(testing, model, 0);
}

TEST_CASE("A slot that was used before gives the same") {
  DecoderTesting testing("gemma3-tiny", 2);
  testing.prefill(1, random_prompt(90, 1));
  check_golden(testing, "gemma3-tiny", 1);
}

TEST_CASE("Sequences that are decoded together get what each gets alone") {
  constexpr std::size_t kSequences = 3;
  constexpr std::int32_t kSteps = 30;
  std::vector<std::vector<float>> alone;
  for (std::size_t s = 0; s < kSequences; ++s) {
    DecoderTesting testing("gemma3-tiny");
    std::vector<std::int32_t> ids = random_prompt(5 + 14 * static_cast<std::int64_t>(s), s);
    testing.prefill(0, std::span(ids).first(ids.size() - 1));
    for (std::int32_t step = 0; step < kSteps; ++step) {
      const auto position = static_cast<std::int32_t>(ids.size()) - 1;
      alone.push_back(testing.decode({{ids.back(), 0, position, position + 1}}).front());
      ids.push_back(greedy(alone.back()));
    }
  }

  DecoderTesting testing("gemma3-tiny", kSequences);
  std::vector<std::vector<std::int32_t>> ids;
  for (std::size_t s = 0; s < kSequences; ++s) {
    ids.push_back(random_prompt(5 + 14 * static_cast<std::int64_t>(s), s));
    testing.prefill(static_cast<std::int32_t>(s), std::span(ids[s]).first(ids[s].size() - 1));
  }
  for (std::int32_t step = 0; step < kSteps; ++step) {
    std::vector<CachedRow> rows;
    for (std::size_t s = 0; s < kSequences; ++s) {
      const auto position = static_cast<std::int32_t>(ids[s].size()) - 1;
      rows.push_back({ids[s].back(), static_cast<std::int32_t>(s), position, position + 1});
    }
    const auto together = testing.decode(rows);
    for (std::size_t s = 0; s < kSequences; ++s) {
      const std::vector<float>& expected = alone[s * kSteps + static_cast<std::size_t>(step)];
      const Shape shape{1, static_cast<std::int64_t>(expected.size())};
      const Comparison result = compare_rows({together[s].data(), DType::kF32, shape},
                                             {expected.data(), DType::kF32, shape}, kLimit);
      INFO("sequence " << s << ", step " << step << ": " << result.report);
      REQUIRE(result.ok);
      ids[s].push_back(greedy(together[s]));
    }
  }
}

}  // namespace
}  // namespace gemmad
