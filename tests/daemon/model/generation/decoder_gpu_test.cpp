// Continuing sequences on a GPU, in bf16, against goldens in float64.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "tests/daemon/model/generation/decoder_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

// The reference tells its bf16 error of hidden states, not of logits. The tied head is a random projection of
// the last state, which keeps relative errors, and rounds its result once (2^-9). Chance: 1.5.
constexpr double kMostTimesReference = 1.5;

std::vector<std::int32_t> ids_of(const ConstTensorView& tensor) {
  return {tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + tensor.shape.num_elements()};
}

double error_of_last_state(const std::string& model) {
  std::ifstream file(model_folder("reference-errors.json"));
  return nlohmann::json::parse(file).at(model).at("bf16_rel_err").get<std::vector<double>>().back();
}

TEST_CASE("Logits on a GPU are off by no more than the reference's bf16, past the window") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  const std::int64_t chunk_rows = GENERATE(7, 64);
  CAPTURE(model, chunk_rows);
  const TensorFile golden(model_folder(model) / "golden.safetensors");
  const std::vector<std::int32_t> prompt = ids_of(golden.get("generate.prompt"));
  const std::vector<std::int32_t> tokens = ids_of(golden.get("generate.tokens"));
  const ConstTensorView logits = golden.get("generate.logits");
  const auto vocab = static_cast<std::size_t>(logits.shape[1]);
  DecoderTesting testing(model, make_cuda_ops({0, 2, {}}), 2, chunk_rows, 256);
  testing.prefill(1, std::span(prompt).first(prompt.size() - 1));
  double error = 0;
  double size = 0;
  std::int32_t last = prompt.back();
  for (std::size_t step = 0; step < tokens.size(); ++step) {
    const auto position = static_cast<std::int32_t>(prompt.size() + step - 1);
    const std::vector<float> actual = testing.decode({{last, 1, position, position + 1}}).front();
    for (std::size_t i = 0; i < vocab; ++i) {
      const double expected = logits.as<float>()[step * vocab + i];
      error += (actual[i] - expected) * (actual[i] - expected);
      size += expected * expected;
    }
    last = tokens[step];
  }
  const double relative = std::sqrt(error / size);
  const double reference = std::hypot(error_of_last_state(model), 0x1p-9);
  WARN(model << ": " << relative << ", " << relative / reference << " of the reference's");
  CHECK(std::isfinite(relative));
  CHECK(relative <= kMostTimesReference * reference);
}

TEST_CASE("On a GPU up to 8 sequences get the same bits together as each alone, again and again") {
  constexpr std::int32_t kSequences = 8;
  DecoderTesting testing("gemma3-tiny", make_cuda_ops({0, 2, {}}), kSequences, 64, 256);
  std::vector<CachedRow> rows;
  for (std::int32_t s = 0; s < kSequences; ++s) {
    const std::vector<std::int32_t> ids = random_prompt(20 + 11 * s, static_cast<std::uint64_t>(s));
    testing.prefill(s, std::span(ids).first(ids.size() - 1));
    const auto position = static_cast<std::int32_t>(ids.size()) - 1;
    rows.push_back({ids.back(), s, position, position + 1});
  }
  const auto together = testing.decode(rows);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t s = 0; s < rows.size(); ++s)
      CHECK(testing.decode({rows[s]}).front() == together[s]);
    CHECK(testing.decode(rows) == together);
  }
}

}  // namespace
}  // namespace gemmad
