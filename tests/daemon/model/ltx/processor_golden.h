// What LTX-2 computed in float64 with its tiny embeddings processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/daemon/model/ltx/processor_testing.h"
#include "tests/support/tensor_file.h"

namespace gemmad {

/// The golden's prompts: of rows padded on the left, those that the mask counts.
class ProcessorGolden {
 public:
  static constexpr StateSizes kSizes{96, 9};
  static constexpr std::int64_t kLength = 128;  // S

  explicit ProcessorGolden(const std::string& model);

  const PackedStates& states() const { return states_; }
  /// [n, C]
  ConstTensorView features(std::size_t prompt, Modality modality) const;
  /// [S, C]
  ConstTensorView embeddings(std::size_t prompt, Modality modality) const;

 private:
  std::vector<std::vector<float>> states_of(std::int64_t prompt, std::int64_t first) const;
  ConstTensorView rows(const std::string& tensor, std::size_t prompt, std::int64_t first) const;

  TensorFile file_;
  PackedStates states_;
  std::vector<std::int64_t> first_rows_;
};

}  // namespace gemmad
