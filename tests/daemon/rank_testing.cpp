#include "tests/daemon/rank_testing.h"

#include "daemon/gather.h"
#include "tests/support/compare.h"

namespace gemmad {

TestRank::TestRank(Bootstrap& bootstrap, const Options& options)
    : bootstrap_(bootstrap),
      files_(open_model(std::string(GEMMAD_TEST_DATA "/models/") + options.model)),
      own_ops_(options.ops != nullptr ? nullptr : make_cpu_ops(1)),
      ops_(options.ops != nullptr ? *options.ops : *own_ops_),
      max_batch_tokens_(options.max_batch_tokens),
      transport_(bootstrap.info().num_ranks == 1 ? one_rank_transport() : host_transport(bootstrap)),
      places_(make_places(options.segments, gather(bootstrap, bootstrap.info().node, kTimeout))) {
  make_segment();
  const OutputFacts facts{
      files_.config().num_layers, files_.config().hidden_size, ops_.compute_dtype(), {}, 0};
  runner_.emplace(bootstrap, ops_, Output{places_, *segment_, store()}, facts,
                  BatchRunner::Timeouts{kTimeout, kTimeout});
}

void TestRank::make_segment() {
  const auto place = static_cast<std::size_t>(places_.of_rank[static_cast<std::size_t>(number())]);
  const int publisher = places_.publishers[place];
  SharedMemory::Address address;
  if (publisher == number()) {
    segment_.emplace(Segment::create(kSegmentBytes, publisher));
    store_.emplace(*segment_, ResultStore::Options{});
    address = segment_->address();
  }
  const std::vector<SharedMemory::Address> addresses = gather(bootstrap_, address, kTimeout);
  if (publisher != number())
    segment_.emplace(Segment::attach(addresses[static_cast<std::size_t>(publisher)], publisher));
}

DeploymentParts TestRank::parts() {
  return {bootstrap_,   ops_, files_.config(),   transport_, transport_, nullptr, places_,
          std::nullopt, 1,    max_batch_tokens_, kTimeout,   kTimeout};
}

std::unique_ptr<Deployment> TestRank::deploy(const ShardSettings& settings) {
  auto deployment = std::make_unique<Deployment>(
      parts(), make_shard_plan(files_.config(), settings, bootstrap_.info().num_ranks),
      DeploymentSources{*files_.checkpoint()}, LoadProgress{});
  deployment->connect();
  deployment->measure_costs();
  return deployment;
}

std::vector<std::byte> TestRank::bytes_of(const TensorInfo& tensor) const {
  const auto bytes = segment_->bytes().subspan(tensor.offset, tensor.size_bytes);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> TestRank::contents(const JobOutcome& outcome) const {
  std::vector<std::byte> all;
  for (const PromptResult& prompt : outcome.prompts) {
    for (const TensorInfo& tensor : prompt.tensors) {
      const std::vector<std::byte> bytes = bytes_of(tensor);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return all;
}

Job job_of(JobId id, const std::vector<std::vector<std::int32_t>>& prompts, const std::string& name) {
  Job job;
  job.id = id;
  job.name = name;
  job.outputs.hidden_states = {0, 8};
  for (const auto& ids : prompts) {
    JobPrompt prompt;
    prompt.ids = ids;
    job.prompts.push_back(std::move(prompt));
  }
  return job;
}

std::vector<std::vector<std::int32_t>> some_prompts() {
  return {{2, 10, 11}, {2}, {2, 20, 21, 22, 23, 24}, {2, 30}};
}

bool same_rows(const std::vector<std::byte>& actual, const std::vector<std::byte>& expected) {
  constexpr std::int64_t kWidth = 96;
  constexpr double kLimit = 2e-5;
  const auto view = [](const std::vector<std::byte>& bytes) {
    const auto num_values = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    return ConstTensorView{bytes.data(), DType::kF32, Shape{num_values / kWidth, kWidth}};
  };
  return compare_rows(view(actual), view(expected), kLimit).ok;
}

}  // namespace gemmad
