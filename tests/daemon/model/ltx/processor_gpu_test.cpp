// The tiny embeddings processors on a GPU, in bf16, against goldens in float64 and what LTX-2's own bf16
// makes of them.
#include <algorithm>
#include <cmath>
#include <string>

#include "daemon/model/ltx/processor_files.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/daemon/model/ltx/processor_golden.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

// Rounding at the same places as the reference, sums in another order: the errors differ by chance, not more.
constexpr double kMostTimesReference = 1.15;

/// Relative L2 errors over all prompts, video and audio. Embeddings: of LTX-2 in bf16. Features, which it
/// does not hand out: of an emulation of all its roundings, whose embeddings have LTX-2's error within 1.2 %.
struct ReferenceErrors {
  const char* model;
  double embeddings[2];
  double features[2];
};
constexpr ReferenceErrors kReferences[] = {
    {"ltx-v1", {5.64e-3, 5.35e-3}, {2.74e-3, 2.74e-3}},
    {"ltx-v1-interleaved", {5.73e-3, 5.41e-3}, {2.78e-3, 2.78e-3}},
    {"ltx-v2", {6.16e-3, 5.45e-3}, {3.39e-3, 3.43e-3}},
    {"ltx-v2-no-ff-bias", {6.39e-3, 6.25e-3}, {3.44e-3, 3.44e-3}},
};

/// Relative L2 error of tensors that come one after another. NaN where a value is.
class ErrorSum {
 public:
  void add(const ConstTensorView& actual, const ConstTensorView& expected) {
    REQUIRE(actual.shape == expected.shape);
    for (std::int64_t i = 0; i < actual.shape.num_elements(); ++i) {
      const double difference = double{actual.as<float>()[i]} - expected.as<float>()[i];
      error_ += difference * difference;
      size_ += double{expected.as<float>()[i]} * expected.as<float>()[i];
    }
  }
  double relative() const { return std::sqrt(error_ / size_); }

 private:
  double error_ = 0;
  double size_ = 0;
};

}  // namespace

TEST_CASE("The error of features and embeddings on a GPU is that of LTX-2's bf16") {
  const ReferenceErrors& reference = kReferences[GENERATE(0, 1, 2, 3)];
  CAPTURE(reference.model);
  const ProcessorGolden golden(reference.model);
  const ProcessorFiles files = ProcessorFiles::open(ltx_file(std::string(reference.model) + ".safetensors"),
                                                    std::nullopt, ProcessorGolden::kSizes);
  ProcessorTesting testing(files, files.config(), {512, 3, ProcessorGolden::kLength}, ProcessorGolden::kSizes,
                           whole_processor(ProcessorGolden::kSizes), make_cuda_ops({0, 2, {}}));
  const std::vector<ProcessorUnit> units = all_units(golden.states().num_prompts());
  const std::vector<UnitResult> results = testing.run(golden.states(), units);
  for (const Modality modality : kModalities) {
    CAPTURE(static_cast<int>(modality));
    ErrorSum features, embeddings;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (units[u].modality != modality) continue;
      features.add(results[u].features_view(), golden.features(units[u].prompt, modality));
      embeddings.add(results[u].embeddings_view(), golden.embeddings(units[u].prompt, modality));
    }
    const auto index = static_cast<std::size_t>(modality);
    CHECK(features.relative() < kMostTimesReference * reference.features[index]);
    CHECK(embeddings.relative() < kMostTimesReference * reference.embeddings[index]);
  }
  // The same input, the same bytes.
  const std::vector<UnitResult> again = testing.run(golden.states(), units);
  for (std::size_t u = 0; u < units.size(); ++u)
    CHECK(again[u].embeddings == results[u].embeddings);
}

}  // namespace gemmad
