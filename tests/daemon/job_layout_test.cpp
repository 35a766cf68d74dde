#include "daemon/job_layout.h"

#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/small_text_config.h"

namespace gemmad {
namespace {

constexpr OutputFacts kFacts{8, 96, DType::kF32, {128, 64}, 1024};

Job job_of(const std::vector<std::size_t>& tokens, OutputSelection outputs) {
  Job job;
  job.outputs = std::move(outputs);
  for (std::size_t n : tokens) {
    JobPrompt prompt;
    prompt.ids.assign(n, 2);
    job.prompts.push_back(std::move(prompt));
  }
  return job;
}

/// The routes of a model of 8 layers over ranks that are a place each.
RouteTable routes_of(const ShardSettings& settings, int num_ranks) {
  const std::vector<int> nodes(static_cast<std::size_t>(num_ranks), 0);
  return {make_shard_plan(small_text_config(), settings, num_ranks), 8,
          make_places(Segments::kPerRank, nodes), true};
}

/// Replicas of one rank each.
RouteTable dealt(int num_ranks) {
  return routes_of({Mode::kBatchParallel, Strategy::kTensor, 0, {}}, num_ranks);
}

/// Two stages: hidden states 0 to 4, then 5 to 8.
RouteTable piped() {
  return routes_of({Mode::kSharded, Strategy::kLayer, 0, {}}, 2);
}

JobPlan dealt_to(std::vector<int> replicas) {
  return {Cut::kDeal, std::move(replicas), {}};
}

TEST_CASE("tensors are named, shaped and sized by their prompt") {
  const Job job = job_of({3}, {{0, 8}, true});
  const JobLayout layout = lay_out(job, dealt_to({0}), dealt(1), kFacts);
  REQUIRE(layout.prompts[0].size() == 3);
  CHECK(layout.prompts[0][0].name == "hidden_states.0");
  CHECK(layout.prompts[0][1].name == "hidden_states.8");
  CHECK(layout.prompts[0][2].name == "last_hidden_state");
  CHECK(layout.prompts[0][2].output == OutputId{OutputKind::kHiddenState, 8});
  CHECK(layout.prompts[0][1].shape == Shape{3, 96});
  CHECK(layout.prompts[0][1].size_bytes == 3 * 96 * 4);
}

TEST_CASE("tensors are aligned, in bounds and apart") {
  const Job job = job_of({1, 7, 3, 12}, {{0, 1, 2}, false});
  const JobLayout layout = lay_out(job, dealt_to({1, 0, 1, 2}), dealt(3), kFacts);
  std::vector<bool> taken(layout.size_bytes, false);
  for (const auto& prompt : layout.prompts) {
    for (const PlacedTensor& tensor : prompt) {
      CHECK(tensor.offset % 256 == 0);
      REQUIRE(tensor.offset + tensor.size_bytes <= layout.size_bytes);
      for (std::uint64_t byte = tensor.offset; byte < tensor.offset + tensor.size_bytes; ++byte) {
        REQUIRE_FALSE(taken[byte]);
        taken[byte] = true;
      }
    }
  }
}

TEST_CASE("what takes one route stands together") {
  const Job job = job_of({1, 7, 3, 12}, {{0, 1}, false});
  const std::vector<int> owners{1, 0, 1, 2};
  const JobLayout layout = lay_out(job, dealt_to(owners), dealt(4), kFacts);
  REQUIRE(layout.routes.size() == 4);
  for (std::size_t p = 0; p < job.prompts.size(); ++p) {
    const RouteRange& range = layout.routes[static_cast<std::size_t>(owners[p])];
    for (const PlacedTensor& tensor : layout.prompts[p]) {
      CHECK(tensor.offset >= range.begin);
      CHECK(tensor.offset + tensor.size_bytes <= range.end);
    }
  }
  CHECK(layout.routes[3].begin == layout.routes[3].end);
  CHECK(layout.routes[2].end == layout.size_bytes);
}

TEST_CASE("hidden states of different stages stand apart, of all prompts together") {
  const Job job = job_of({2, 3}, {{0, 4, 5, 8}, true});
  const JobLayout layout = lay_out(job, dealt_to({0, 0}), piped(), kFacts);
  REQUIRE(layout.routes.size() == 2);
  CHECK(layout.routes[0].begin == 0);
  CHECK(layout.routes[0].end == layout.routes[1].begin);
  CHECK(layout.routes[1].end == layout.size_bytes);
  for (const auto& prompt : layout.prompts) {
    for (const PlacedTensor& tensor : prompt) {
      CAPTURE(tensor.name);
      CHECK(tensor.route == (tensor.output.index <= 4 ? 0 : 1));
      CHECK(tensor.offset >= layout.routes[tensor.route].begin);
      CHECK(tensor.offset + tensor.size_bytes <= layout.routes[tensor.route].end);
    }
  }
}

TEST_CASE(
    "features are as long as their prompt, embeddings as a full sequence, each as wide as its modality") {
  const Job job = job_of({3}, {{}, false, true, true});
  JobPlan plan = dealt_to({0});
  plan.processors = {{0, 0}};
  const JobLayout layout = lay_out(job, plan, dealt(1), kFacts);
  REQUIRE(layout.prompts[0].size() == 4);
  CHECK(layout.prompts[0][0].name == "features.video");
  CHECK(layout.prompts[0][0].shape == Shape{3, 128});
  CHECK(layout.prompts[0][1].name == "features.audio");
  CHECK(layout.prompts[0][1].shape == Shape{3, 64});
  CHECK(layout.prompts[0][2].name == "embeddings.video");
  CHECK(layout.prompts[0][2].shape == Shape{1024, 128});
  CHECK(layout.prompts[0][3].name == "embeddings.audio");
  CHECK(layout.prompts[0][3].output == OutputId{OutputKind::kEmbeddings, 1});
}

TEST_CASE("of the modalities only those are placed that are asked for") {
  const Job job = job_of({3}, {{}, false, false, true, {false, true}});
  JobPlan plan = dealt_to({0});
  plan.processors = {{-1, 0}};
  const JobLayout layout = lay_out(job, plan, dealt(1), kFacts);
  REQUIRE(layout.prompts[0].size() == 1);
  CHECK(layout.prompts[0][0].name == "embeddings.audio");
}

TEST_CASE("embeddings take the route of the rank that makes them") {
  const RouteTable routes = routes_of({Mode::kSharded, Strategy::kTensor, 0, {}}, 2);
  const Job job = job_of({3}, {{8}, false, false, true});
  JobPlan plan = dealt_to({0});
  plan.processors = {{1, 0}};
  const JobLayout layout = lay_out(job, plan, routes, kFacts);
  REQUIRE(layout.prompts[0].size() == 3);
  CHECK(layout.prompts[0][0].route == routes.index(Cut::kDeal, 0, 8));
  CHECK(layout.prompts[0][1].route == routes.of_rank(1));
  CHECK(layout.prompts[0][2].route == routes.of_rank(0));
}

TEST_CASE("a prompt that failed takes no space") {
  Job job = job_of({4, 0}, {{0}, false});
  job.prompts[1].error_code = "bad_token";
  const JobLayout layout = lay_out(job, dealt_to({0, 0}), dealt(1), kFacts);
  CHECK(layout.prompts[1].empty());
  CHECK(layout.size_bytes == 4 * 96 * 4);
}

TEST_CASE("a job without prompts is empty") {
  const JobLayout layout = lay_out(Job{}, dealt_to({}), dealt(2), kFacts);
  CHECK(layout.size_bytes == 0);
  CHECK(layout.routes.size() == 2);
}

}  // namespace
}  // namespace gemmad
