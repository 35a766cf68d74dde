// The tiny models on a GPU, in bf16, against goldens in float64 and what Hugging Face's bf16 makes of them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/cuda/cuda_ops.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

// Rounding at the same places as the reference, sums in another order: the errors differ by chance, not more.
constexpr double kMostTimesReference = 1.15;

/// Relative L2 error of rows that come in pieces.
class ErrorSum {
 public:
  void add(const ConstTensorView& actual, const float* expected) {
    for (std::int64_t i = 0; i < actual.shape.num_elements(); ++i) {
      const double difference = double{actual.as<float>()[i]} - expected[i];
      error_ += difference * difference;
      size_ += double{expected[i]} * expected[i];
    }
  }
  double relative() const { return std::sqrt(error_ / size_); }

 private:
  double error_ = 0;
  double size_ = 0;
};

std::vector<double> reference_errors(const std::string& model) {
  std::ifstream file(model_folder("reference-errors.json"));
  return nlohmann::json::parse(file).at(model).at("bf16_rel_err").get<std::vector<double>>();
}

struct Golden {
  PromptBatch batch;
  std::vector<std::int64_t> first_rows;  // in the padded golden
};

Golden prompts_of(const TensorFile& file) {
  const ConstTensorView ids = file.get("input_ids");
  const ConstTensorView mask = file.get("attention_mask");
  Golden golden;
  for (std::int64_t b = 0; b < ids.shape[0]; ++b) {
    const std::int64_t row = b * ids.shape[1];
    std::int64_t first = 0;
    while (mask.as<std::int32_t>()[row + first] == 0)
      ++first;
    const std::int32_t* begin = ids.as<std::int32_t>() + row;
    golden.batch.add({begin + first, begin + ids.shape[1]});
    golden.first_rows.push_back(first);
  }
  return golden;
}

bool same(const CollectingSink& a, const CollectingSink& b, std::int64_t rows) {
  for (std::int64_t index = 0; index < a.count(); ++index) {
    const ConstTensorView x = a.rows(index, 0, rows);
    const ConstTensorView y = b.rows(index, 0, rows);
    if (!std::equal(x.as<float>(), x.as<float>() + x.shape.num_elements(), y.as<float>())) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("The error of bf16 on a GPU is that of the reference's bf16, state by state") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  CAPTURE(model);
  const TensorFile file(model_folder(model) / "golden.safetensors");
  const std::int64_t padded_length = file.get("input_ids").shape[1];
  const Golden golden = prompts_of(file);
  EncoderTesting testing(model_folder(model), make_cuda_ops({0, 2, {}}), padded_length);
  const CollectingSink sink = testing.encode(golden.batch);
  const std::vector<double> reference = reference_errors(model);
  REQUIRE(static_cast<std::size_t>(sink.count()) == reference.size());
  for (std::int64_t index = 0; index < sink.count(); ++index) {
    const ConstTensorView states = file.get("hidden_states." + std::to_string(index));
    const std::int64_t width = states.shape[2];
    ErrorSum sum;
    for (std::size_t b = 0; b + 1 < golden.batch.offsets.size(); ++b) {
      const std::int64_t row = static_cast<std::int64_t>(b) * padded_length + golden.first_rows[b];
      sum.add(sink.rows(index, golden.batch.offsets[b], golden.batch.offsets[b + 1]),
              states.as<float>() + row * width);
    }
    const double share = sum.relative() / reference[static_cast<std::size_t>(index)];
    WARN(model << " state " << index << ": " << sum.relative() << ", " << share << " of the reference's");
    CHECK(std::isfinite(share));
    CHECK(share <= kMostTimesReference);
  }
}

TEST_CASE("A pass told, recorded and repeated gives the same bytes, whatever ran in between") {
  EncoderTesting testing(model_folder("gemma3-tiny"), make_cuda_ops({0, 2, {}}));
  const PromptBatch batch = batch_of({random_prompt(17, 1), random_prompt(60, 2), random_prompt(1, 3)});
  const CollectingSink told = testing.encode(batch);
  for (int round = 0; round < 4; ++round) {
    testing.encode(batch_of({random_prompt(79, static_cast<std::uint64_t>(round + 10))}));  // as many rows
    testing.encode(batch_of({random_prompt(300, static_cast<std::uint64_t>(round + 20))}));
    CHECK(same(testing.encode(batch), told, batch.offsets.back()));
  }
}

TEST_CASE("States are finite for every length from 1 to 1024, alone and in batches of mixed lengths") {
  EncoderTesting testing(model_folder("gemma3-tiny"), make_cuda_ops({0, 2, {}}));
  const auto is_finite = [](const CollectingSink& sink, std::int64_t rows) {
    const ConstTensorView last = sink.rows(sink.count() - 1, 0, rows);
    return std::all_of(last.as<float>(), last.as<float>() + last.shape.num_elements(),
                       [](float value) { return std::isfinite(value) && std::abs(value) < 1e4f; });
  };
  for (std::int64_t length = 1; length <= 1024; length += length < 140 ? 1 : 13)
    REQUIRE(is_finite(testing.encode(batch_of({random_prompt(length, 5)})), length));
  for (std::uint64_t round = 0; round < 12; ++round) {
    std::vector<std::vector<std::int32_t>> prompts;
    for (std::uint64_t b = 0; b < 7; ++b)
      prompts.push_back(random_prompt(static_cast<std::int64_t>(1 + (round * 131 + b * 97) % 420), b));
    const PromptBatch batch = batch_of(prompts);
    REQUIRE(is_finite(testing.encode(batch), batch.offsets.back()));
  }
}

}  // namespace gemmad
