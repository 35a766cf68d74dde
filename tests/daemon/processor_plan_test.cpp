#include "daemon/processor_plan.h"

#include <set>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/small_text_config.h"

namespace gemmad {
namespace {

constexpr StateSizes kStates{96, 9};

ProcessorConfig sizes() {
  ProcessorConfig config;
  config.variant = ProcessorVariant::kV2;
  config.video = {4, 32, 2};
  config.audio = {4, 16, 2};
  return config;
}

Job job_of(std::size_t num_prompts, OutputSelection outputs) {
  Job job;
  job.outputs = outputs;
  job.prompts.resize(num_prompts);
  for (JobPrompt& prompt : job.prompts)
    prompt.ids.assign(10, 2);
  return job;
}

/// The plan of one job whose prompts go to `replicas`.
JobPlan dealt(const Job& job, std::vector<int> replicas, const ShardPlan& plan) {
  JobPlan result{Cut::kDeal, std::move(replicas), {}};
  deal_processing(std::span(&job, 1), plan, sizes(), kStates, std::span(&result, 1));
  return result;
}

ShardPlan plan_of(Mode mode, Strategy strategy, int num_ranks) {
  return make_shard_plan(small_text_config(), {mode, strategy, 0, {}}, num_ranks);
}

const OutputSelection kEmbeddings{{}, false, false, true};

TEST_CASE("a replica of one rank does all that its prompts need") {
  const JobPlan plan = dealt(job_of(3, kEmbeddings), {1, 0, 1}, plan_of(Mode::kBatchParallel, {}, 2));
  CHECK(plan.processors == std::vector<std::array<int, 2>>{{1, 1}, {0, 0}, {1, 1}});
}

TEST_CASE("slices share the prompts of a pair, and the modalities of one prompt") {
  const ShardPlan tensor = plan_of(Mode::kSharded, Strategy::kTensor, 2);
  const JobPlan pair = dealt(job_of(2, kEmbeddings), {0, 0}, tensor);
  CHECK(pair.processors[0][0] != pair.processors[1][0]);
  CHECK(pair.processors[0][1] != pair.processors[1][1]);
  const JobPlan one = dealt(job_of(1, kEmbeddings), {0}, tensor);
  CHECK(one.processors[0][0] != one.processors[0][1]);
}

TEST_CASE("of stages the one with the last layer does it") {
  const JobPlan plan = dealt(job_of(2, kEmbeddings), {0, 0}, plan_of(Mode::kSharded, Strategy::kLayer, 3));
  CHECK(plan.processors == std::vector<std::array<int, 2>>{{2, 2}, {2, 2}});
}

TEST_CASE("stages behind the last layer do nothing") {
  const ShardPlan plan = plan_of(Mode::kSharded, Strategy::kLayer, 10);
  const std::vector<int> ranks = processor_ranks(plan.replicas.front(), 8);
  REQUIRE(ranks.size() == 1);
  CHECK_FALSE(plan.shard_of(ranks.front())->layers.empty());
}

TEST_CASE("what is not wanted, and a prompt that failed, go to nobody") {
  Job job = job_of(2, {{}, false, true, false, {true, false}});
  job.prompts[1].error_code = "bad_token";
  const JobPlan plan = dealt(job, {0, 0}, plan_of(Mode::kBatchParallel, {}, 1));
  CHECK(plan.processors == std::vector<std::array<int, 2>>{{0, -1}, {-1, -1}});
  CHECK(dealt(job_of(1, {{8}, false}), {0}, plan_of(Mode::kBatchParallel, {}, 1)).processors.empty());
}

TEST_CASE("a connector costs more than a projection, and a wide one more than a narrow one") {
  const ProcessorConfig config = sizes();
  const auto cost = [&](Modality modality, bool embeddings) {
    return processing_cost(config, kStates, modality, 10, embeddings, 1024);
  };
  CHECK(cost(Modality::kVideo, true) > cost(Modality::kVideo, false));
  CHECK(cost(Modality::kVideo, true) > cost(Modality::kAudio, true));
}

}  // namespace
}  // namespace gemmad
