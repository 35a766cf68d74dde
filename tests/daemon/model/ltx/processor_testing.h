// Small embeddings processors and what comes out of them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/ltx/embeddings_processor.h"
#include "daemon/model/weight_source.h"
#include "kernels/ops.h"

namespace gemmad {

inline std::filesystem::path ltx_file(const std::string& name) {
  return std::filesystem::path(GEMMAD_TEST_DATA) / "ltx-tiny" / name;
}

/// The hidden states of prompts, packed.
class PackedStates {
 public:
  explicit PackedStates(const StateSizes& sizes) : sizes_(sizes), states_(sizes.num_states) {}

  /// `states`: of each index [n, D].
  void add(const std::vector<std::vector<float>>& states);

  const StateSizes& sizes() const { return sizes_; }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  std::size_t num_prompts() const { return offsets_.size() - 1; }
  std::int64_t num_rows(std::size_t prompt) const { return offsets_[prompt + 1] - offsets_[prompt]; }
  /// [N, D]
  ConstTensorView state(std::int64_t index) const;
  /// [n, D] of one prompt.
  ConstTensorView state(std::int64_t index, std::size_t prompt) const;
  /// One of the prompts alone.
  PackedStates only(std::size_t prompt) const;
  /// Sets all rows of a prompt.
  void fill(std::size_t prompt, float value);

 private:
  StateSizes sizes_;
  std::vector<std::int64_t> offsets_ = {0};
  std::vector<std::vector<float>> states_;
};

/// About normal, with this deviation; the same for the same seed.
std::vector<float> normal_values(std::size_t count, double deviation, std::uint64_t seed);

/// Prompts of these lengths with states of normal_values, each state of an own size around `deviation`.
PackedStates random_states(const StateSizes& sizes, const std::vector<std::int64_t>& lengths,
                           double deviation, std::uint64_t seed);

/// Weights in F32 for a processor of any shape: of such sizes that each part of it shows in the results.
class TestProcessor final : public WeightSource {
 public:
  TestProcessor(const ProcessorConfig& config, const StateSizes& sizes, std::uint64_t seed);

  HostTensor tensor(std::string_view name) const override { return tensors_.at(std::string(name)); }
  void release(const HostTensor&) const override {}
  std::uint64_t size_bytes() const override { return 0; }
  bool is_on_disk() const override { return false; }

 private:
  std::map<std::string, HostTensor> tensors_;
};

/// What came for one modality of one prompt. F32, on the host.
struct UnitResult {
  std::vector<float> features;    // [n, C]
  std::vector<float> embeddings;  // [S, C]
  std::int64_t width = 0;

  ConstTensorView features_view() const;
  ConstTensorView embeddings_view() const;
};

/// Takes results to the host and checks what comes when against ProcessorSink's contract.
class CollectingProcessorSink final : public ProcessorSink {
 public:
  /// `num_rows`: of each unit's prompt.
  CollectingProcessorSink(Ops& ops, std::vector<ProcessorUnit> units, std::vector<std::int64_t> num_rows,
                          std::int64_t sequence_length);

  void features(Modality modality, std::span<const std::size_t> units, ConstTensorView x,
                const Moment& ready) override;
  void embeddings(Modality modality, std::span<const std::size_t> units, ConstTensorView x,
                  const Moment& ready) override;

  /// By units of the pass.
  const std::vector<UnitResult>& results() const { return results_; }
  /// Units at once, of each call of embeddings().
  const std::vector<std::size_t>& turns() const { return turns_; }
  /// Throws std::runtime_error for what was wrong: the order of units, a result of the call before the last
  /// that was overwritten too early, a modality twice.
  void require_in_order() const;

 private:
  std::vector<float> to_host(ConstTensorView x, const Moment& ready);

  Ops& ops_;
  std::vector<ProcessorUnit> units_;
  std::vector<std::int64_t> num_rows_;
  std::int64_t sequence_length_;
  std::vector<UnitResult> results_;
  std::vector<std::size_t> turns_;
  std::vector<std::size_t> embedded_;
  std::array<int, 2> num_features_calls_{};
  ConstTensorView last_;  // embeddings of the last call
  std::vector<float> last_values_;
  std::string problem_;
};

/// One stage.
class ProcessorTesting {
 public:
  /// On the CPU.
  ProcessorTesting(const WeightSource& source, const ProcessorConfig& config, const ProcessorLimits& limits,
                   const StateSizes& sizes);
  ProcessorTesting(const WeightSource& source, const ProcessorConfig& config, const ProcessorLimits& limits,
                   const StateSizes& sizes, const ProcessorShare& share, std::shared_ptr<Ops> ops);

  Ops& ops() { return *ops_; }
  EmbeddingsProcessor& processor() { return *processor_; }
  const ProcessorWorkspace& workspace() const { return *workspace_; }

  void begin(const PackedStates& states, const std::vector<ProcessorUnit>& units, bool continues = false);
  /// Those of the share.
  void add_states(const PackedStates& states);
  CollectingProcessorSink finish();
  /// All of it.
  std::vector<UnitResult> run(const PackedStates& states, const std::vector<ProcessorUnit>& units);

 private:
  std::shared_ptr<Ops> ops_;
  ProcessorShare share_;
  std::unique_ptr<ProcessorWorkspace> workspace_;
  std::unique_ptr<EmbeddingsProcessor> processor_;
  std::vector<ProcessorUnit> units_;
  std::vector<std::int64_t> num_rows_;
};

/// Everything of every prompt, prompt by prompt.
std::vector<ProcessorUnit> all_units(std::size_t num_prompts);

}  // namespace gemmad
