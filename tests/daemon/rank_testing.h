// Ranks as threads, each with what lies between the bootstrap and a deployment of a small model.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "comm/result_store.h"
#include "comm/route.h"
#include "comm/segment.h"
#include "daemon/batch_runner.h"
#include "daemon/deployment.h"
#include "daemon/model/model_files.h"
#include "kernels/cpu/cpu_ops.h"

namespace gemmad {

/// The rank of a thread; made on all ranks at the same time.
class TestRank {
 public:
  static constexpr std::chrono::milliseconds kTimeout{60'000};
  static constexpr std::uint64_t kSegmentBytes = 1 << 20;

  struct Options {
    Segments segments = Segments::kPerRank;
    std::int64_t max_batch_tokens = 1024;
    std::string model = "gemma3-tiny";
    Ops* ops = nullptr;  // null: one thread of the CPU; must outlive the rank
  };

  explicit TestRank(Bootstrap& bootstrap) : TestRank(bootstrap, Options{}) {}
  TestRank(Bootstrap& bootstrap, const Options& options);

  DeploymentParts parts();
  std::unique_ptr<Deployment> deploy(const ShardSettings& settings);
  /// Null where another rank of the place publishes.
  ResultStore* store() { return store_ ? &*store_ : nullptr; }
  BatchRunner& runner() { return *runner_; }
  Output output() { return {places_, *segment_, store()}; }
  Bootstrap& bootstrap() { return bootstrap_; }
  const ModelFiles& files() const { return files_; }
  int number() const { return bootstrap_.info().rank; }

  /// The bytes of one tensor, of all tensors of a published job one after another, as this place's readers
  /// see them.
  std::vector<std::byte> bytes_of(const TensorInfo& tensor) const;
  std::vector<std::byte> contents(const JobOutcome& outcome) const;

 private:
  void make_segment();

  Bootstrap& bootstrap_;
  ModelFiles files_;
  std::unique_ptr<Ops> own_ops_;
  Ops& ops_;
  std::int64_t max_batch_tokens_;
  Transport transport_;
  Places places_;
  std::optional<Segment> segment_;
  std::optional<ResultStore> store_;
  std::optional<BatchRunner> runner_;
};

/// A job for hidden states 0 and 8 of prompts of these ids.
Job job_of(JobId id, const std::vector<std::vector<std::int32_t>>& prompts, const std::string& name = "");

/// A few short prompts, of different lengths.
std::vector<std::vector<std::int32_t>> some_prompts();

/// Every row of the tiny models' hidden states in `actual` is within the project's 2e-5 (relative L2) of the
/// row in `expected`. Rows of 96 values.
bool same_rows(const std::vector<std::byte>& actual, const std::vector<std::byte>& expected);

}  // namespace gemmad
