// Sequences over ranks: the same tokens in every mode, for every number of ranks, alone and together.
#include "daemon/generator.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string model_file(const std::string& model, const std::string& name) {
  return std::string(GEMMAD_TEST_DATA "/models/") + model + "/" + name;
}

Tokens ids_of(const ConstTensorView& tensor) {
  return {tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + tensor.shape.num_elements()};
}

SequenceStart greedy_start(JobId id, Tokens ids, std::int32_t replica = 0) {
  SequenceStart start;
  start.id = id;
  start.ids = std::move(ids);
  start.replica = replica;
  start.sampling.greedy = true;
  return start;
}

/// Runs `starts` together until each has `count` tokens; the tokens as rank 0 hears them.
std::map<JobId, Tokens> continue_all(int num_ranks, const ShardSettings& settings, const std::string& model,
                                     const std::vector<SequenceStart>& starts, std::size_t count) {
  std::map<JobId, Tokens> heard;
  run_ranks(num_ranks, [&](Bootstrap& bootstrap) {
    TestRank::Options options;
    options.model = model;
    TestRank rank(bootstrap, options);
    const auto deployment = rank.deploy(settings);
    const TextConfig config = rank.files().config();
    const DeploymentParts parts = rank.parts();
    Generator generator({bootstrap, parts.ops, config, nullptr, 4, 256, TestRank::kTimeout}, *deployment);
    std::map<JobId, Tokens> tokens;
    GenerationOrder order{{}, starts};
    for (std::size_t open = starts.size(); open > 0;) {
      const StepReport report = generator.step(order);
      require(report.error.empty(), "the step goes well: " + report.error);
      order = {};
      for (const SequenceNews& news : report.news) {
        tokens[news.id].push_back(news.token);
        if (tokens[news.id].size() < count) continue;
        order.ends.push_back(news.id);
        --open;
      }
    }
    if (rank.number() == 0) heard = tokens;
  });
  return heard;
}

const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};
const ShardSettings kTensor{Mode::kSharded, Strategy::kTensor, 0, {}};
const ShardSettings kLayer{Mode::kSharded, Strategy::kLayer, 0, {}};
const ShardSettings kAdaptive{Mode::kAdaptive, Strategy::kTensor, 0, {}};

TEST_CASE("Greedy tokens of every mode and number of ranks are the goldens'") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  const int num_ranks = GENERATE(1, 2, 4);
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor, kLayer, kAdaptive);
  CAPTURE(model, num_ranks, static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  const TensorFile golden(model_file(model, "golden.safetensors"));
  const Tokens expected = ids_of(golden.get("generate.tokens"));
  const auto tokens = continue_all(num_ranks, settings, model,
                                   {greedy_start(1, ids_of(golden.get("generate.prompt")))}, expected.size());
  CHECK(tokens.at(1) == expected);
}

TEST_CASE("Prompts of every length get the same tokens alone and together, on one rank and on several") {
  // Lengths of every residue modulo 8, on both sides of the chunks' 16 rows and of the window's 16.
  constexpr std::size_t kTokens = 12;
  std::vector<SequenceStart> starts;
  std::map<JobId, Tokens> alone;
  for (std::int64_t length = 9; length < 25; ++length) {
    Tokens ids{2};
    for (std::int64_t i = 1; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>((i * 131 + length * 17) % 500));
    starts.push_back(greedy_start(static_cast<JobId>(length), ids));
    alone[static_cast<JobId>(length)] =
        continue_all(1, kBatchParallel, "gemma3-tiny", {starts.back()}, kTokens).begin()->second;
  }
  const int num_ranks = GENERATE(1, 2, 4);
  const auto settings = GENERATE(as<ShardSettings>{}, kTensor, kLayer, kBatchParallel,
                                 ShardSettings{Mode::kSharded, Strategy::kTensor, 2, {}});
  if (settings.ranks_per_replica > num_ranks) return;
  CAPTURE(num_ranks, static_cast<int>(settings.mode), static_cast<int>(settings.strategy));
  std::int32_t num_replicas = settings.mode == Mode::kBatchParallel ? num_ranks : 1;
  if (settings.ranks_per_replica > 0) num_replicas = num_ranks / 2;
  for (std::size_t first = 0; first < starts.size(); first += 4) {
    std::vector<SequenceStart> some(starts.begin() + static_cast<std::ptrdiff_t>(first),
                                    starts.begin() + static_cast<std::ptrdiff_t>(first) + 4);
    for (std::size_t i = 0; i < some.size(); ++i)
      some[i].replica = static_cast<std::int32_t>(i) % num_replicas;
    for (const auto& [id, tokens] : continue_all(num_ranks, settings, "gemma3-tiny", some, kTokens))
      CHECK(tokens == alone.at(id));
  }
}

TEST_CASE("The same seed gives the same tokens on any number of ranks, another seed others") {
  const auto sampled = [](std::uint64_t seed, int num_ranks, const ShardSettings& settings) {
    SequenceStart start = greedy_start(1, {2, 5, 7, 11});
    start.sampling = {};
    start.sampling.seed = seed;
    return continue_all(num_ranks, settings, "gemma3-tiny", {start}, 24).at(1);
  };
  const Tokens first = sampled(3, 1, kBatchParallel);
  CHECK(sampled(3, 2, kTensor) == first);
  CHECK(sampled(3, 4, kLayer) == first);
  CHECK(sampled(4, 1, kBatchParallel) != first);
}

TEST_CASE("A sequence that begins anew with what it had goes on as if nothing had happened") {
  const auto settings = GENERATE(as<ShardSettings>{}, kBatchParallel, kTensor);
  SequenceStart start = greedy_start(1, {2, 5, 7, 11, 13});
  start.sampling.greedy = GENERATE(true, false);
  const Tokens whole = continue_all(2, settings, "gemma3-tiny", {start}, 30).at(1);
  SequenceStart rest = start;
  rest.ids.insert(rest.ids.end(), whole.begin(), whole.begin() + 20);
  rest.num_generated = 20;
  const Tokens tail = continue_all(2, settings, "gemma3-tiny", {rest}, 10).at(1);
  CHECK(tail == Tokens(whole.begin() + 20, whole.end()));
}

}  // namespace
}  // namespace gemmad
