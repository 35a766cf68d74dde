// The distribution that transformers drew from, and draws from it.
#include <algorithm>
#include <cmath>
#include <string>

#include "daemon/model/generation/sampling.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

using namespace gemmad;

namespace {

const char* const kModels[] = {"gemma3-tiny", "gemma3-text-tiny"};

TensorFile golden(const std::string& model) {
  return TensorFile(std::string(GEMMAD_TEST_DATA) + "/models/" + model + "/golden.safetensors");
}

/// Row `index` of the generation's logits.
ConstTensorView row_of(const TensorFile& file, std::int64_t index) {
  const ConstTensorView logits = file.get("generate.logits");
  return {logits.as<float>() + index * logits.shape[1], DType::kF32, Shape{logits.shape[1]}};
}

/// Those of the goldens.
SamplingParams params() {
  SamplingParams out;
  out.temperature = 0.7;
  out.top_k = 64;
  out.top_p = 0.95;
  return out;
}

}  // namespace

TEST_CASE("The distribution over the first token is the reference's") {
  for (const char* model : kModels) {
    CAPTURE(model);
    const TensorFile file = golden(model);
    const auto* expected = file.get("sampling.probabilities").as<float>();
    const std::vector<double> found = TokenChooser().distribution(row_of(file, 0), {}, params());
    REQUIRE(found.size() == 512);
    double error = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      error = std::max(error, std::abs(found[i] - static_cast<double>(expected[i])));
      CHECK((found[i] > 0) == (expected[i] > 0));
    }
    // Probabilities below 0.2 stored in fp32 are off by up to 2^-27.
    CHECK(error < 1e-6);
  }
}

TEST_CASE("Greedy choice follows the reference token by token") {
  SamplingParams greedy;
  greedy.greedy = true;
  for (const char* model : kModels) {
    const TensorFile file = golden(model);
    const auto* tokens = file.get("generate.tokens").as<std::int32_t>();
    for (std::int64_t i = 0; i < 40; ++i)
      CHECK(TokenChooser().choose(row_of(file, i), {}, greedy, 0) == tokens[i]);
  }
}

TEST_CASE("Draws of many seeds, and of many counters, follow the distribution") {
  // Pearson's statistic of d + 1 cells is about chi-square of d degrees of freedom, where every cell expects
  // five draws or more; rarer tokens share a cell. A chi-square exceeds d + 2 sqrt(d t) + 2 t with a
  // probability of at most e^-t (Laurent and Massart 2000, lemma 1). t = 7 is 1 in 1100, and the seeds are
  // fixed.
  constexpr int kDraws = 40000;
  const TensorFile file = golden("gemma3-tiny");
  const ConstTensorView row = row_of(file, 0);
  TokenChooser chooser;
  const std::vector<double> probabilities = chooser.distribution(row, {}, params());
  const auto statistic_is_small = [&](auto&& draw) {
    std::vector<int> counts(probabilities.size());
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<std::size_t>(draw(static_cast<std::uint64_t>(i)))];
    double statistic = 0;
    double cells = 0;
    double rare_expected = 0;
    double rare_count = 0;
    const auto add = [&](double expected, double count) {
      statistic += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (std::size_t id = 0; id < counts.size(); ++id) {
      const double expected = probabilities[id] * kDraws;
      if (expected == 0) REQUIRE(counts[id] == 0);
      if (expected >= 5) {
        add(expected, counts[id]);
      } else {
        rare_expected += expected;
        rare_count += counts[id];
      }
    }
    if (rare_expected > 0) add(rare_expected, rare_count);
    const double d = cells - 1;
    constexpr double kT = 7;
    INFO("statistic " << statistic << " of " << d << " degrees");
    REQUIRE(d > 40);
    CHECK(statistic < d + 2 * std::sqrt(d * kT) + 2 * kT);
    CHECK(statistic > d - 2 * std::sqrt(d * kT));  // the same lemma's lower bound: not suspiciously even
  };
  SamplingParams sampling = params();
  SECTION("seeds") {
    statistic_is_small([&](std::uint64_t i) {
      sampling.seed = i;
      return chooser.choose(row, {}, sampling, 0);
    });
  }
  SECTION("counters of one seed") {
    sampling.seed = 42;
    statistic_is_small([&](std::uint64_t i) { return chooser.choose(row, {}, sampling, i); });
  }
}
