// Several ranks, as threads, compute one model together: every hidden state is that of one rank alone.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/collectives.h"
#include "daemon/group_links.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

// Relative L2 error a row, the project's bound for a run over several ranks. Slices only change the order of
// the sums in o_proj and down_proj: about sqrt(2 L) roundings of 6e-8 that later layers pass on, 1e-6 at most
// over 8 layers; a head or a column that is missing or counted twice costs 0.1.
constexpr double kLimit = 2e-5;
constexpr std::chrono::milliseconds kTimeout{60'000};

/// Lengths around the small window and long enough for several blocks of attention; below every vocabulary.
PromptBatch batch() {
  return batch_of({random_prompt(33, 1), random_prompt(1, 2), random_prompt(150, 3), random_prompt(16, 4)});
}

/// All hidden states of one rank: by index, the bytes of [N, D] F32.
using States = std::map<std::int64_t, std::vector<float>>;

/// How a rank comes to its part of the weights.
using LoadPart = std::function<TextWeights(const TestModel&, const Shard&, Ops&)>;

TextWeights load_shard(const TestModel& model, const Shard& shard, Ops& ops) {
  return load_text_weights(*model.source, model.config, shard, ops, {});
}

TextWeights load_slice(const TestModel& model, const Shard& shard, Ops& ops) {
  const TextWeights whole =
      load_text_weights(*model.source, model.config, whole_model(model.config, shard.rank), ops, {});
  return slice_of(whole, model.config, shard);
}

States encode_part(const TestModel& model, TextWeights weights, PartLinks& links, Ops& ops) {
  const PromptBatch prompts = batch();
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  TextWorkspace workspace(model.config, {weights.heads, weights.ffn_width}, ops, num_tokens);
  TextEncoder encoder(model.config, std::move(weights), workspace, ops);
  CollectingSink sink(ops);
  encoder.forward(prompts.packed(), links, sink);
  require(sink.in_order(), "hidden states come in order");
  States states;
  for (std::int64_t index = sink.first(); sink.has(index); ++index) {
    const ConstTensorView rows = sink.rows(index, 0, num_tokens);
    states[index] = {rows.as<float>(), rows.as<float>() + rows.shape.num_elements()};
  }
  return states;
}

States encode_alone(const TestModel& model) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  NoLinks links;
  return encode_part(model, load_shard(model, whole_model(model.config, 0), *ops), links, *ops);
}

/// What each rank of `replica` computes; nothing for a rank that has no part in it.
std::vector<States> encode_together(const TestModel& model, const Replica& replica, int num_ranks,
                                    const LoadPart& load) {
  std::vector<int> members;
  for (const Shard& shard : replica.shards)
    members.push_back(shard.rank);
  std::vector<States> by_rank(static_cast<std::size_t>(num_ranks));
  run_ranks(num_ranks, [&](Bootstrap& bootstrap) {
    const int rank = bootstrap.info().rank;
    const auto place = std::find(members.begin(), members.end(), rank);
    if (place == members.end()) return;
    const auto stage = static_cast<int>(place - members.begin());
    const std::unique_ptr<Ops> ops = make_cpu_ops(1);
    std::unique_ptr<Collectives> group = host_transport(bootstrap).group(members, kTimeout);
    const bool sliced = replica.strategy == Strategy::kTensor;
    GroupLinks links(sliced ? std::move(group) : nullptr, nullptr, sliced ? nullptr : std::move(group), stage,
                     static_cast<int>(replica.shards.size()));
    const Shard& shard = replica.shards[static_cast<std::size_t>(stage)];
    by_rank[static_cast<std::size_t>(rank)] = encode_part(model, load(model, shard, *ops), links, *ops);
  });
  return by_rank;
}

void check_close(const States& actual, const States& expected, std::int64_t width) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& [index, values] : expected) {
    const Shape shape{static_cast<std::int64_t>(values.size()) / width, width};
    const Comparison result = compare_rows({actual.at(index).data(), DType::kF32, shape},
                                           {values.data(), DType::kF32, shape}, kLimit);
    INFO("hidden state " << index << ": " << result.report);
    CHECK(result.ok);
  }
}

bool same_bytes(const States& a, const States& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.size() == y.second.size() &&
           std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
  });
}

}  // namespace

TEST_CASE("Tensor shards together equal one rank, and all end with the same bytes") {
  const std::string name = GENERATE("gemma3-tiny", "gemma3-text-tiny", "random");
  const int num_ranks = GENERATE(1, 2, 3, 4, 5, 8);
  CAPTURE(name, num_ranks);
  const TestModel model = test_model(name);
  const std::vector<States> together =
      encode_together(model, replica_of(model, Strategy::kTensor, num_ranks), num_ranks, load_shard);
  check_close(together[0], encode_alone(model), model.config.hidden_size);
  for (const States& other : together)
    CHECK(same_bytes(other, together[0]));
}

TEST_CASE("Slices of whole replicas together equal one rank, and all end with the same bytes") {
  const std::string name = GENERATE("gemma3-tiny", "gemma3-text-tiny", "random");
  const int num_ranks = GENERATE(2, 3, 4, 5, 8);
  CAPTURE(name, num_ranks);
  const TestModel model = test_model(name);
  const ShardPlan plan = make_shard_plan(model.config, {Mode::kAdaptive, {}, 0, {}}, num_ranks);
  REQUIRE(plan.split.has_value());
  const std::vector<States> together = encode_together(model, *plan.split, num_ranks, load_slice);
  check_close(together[0], encode_alone(model), model.config.hidden_size);
  for (const States& other : together)
    CHECK(same_bytes(other, together[0]));
}

TEST_CASE("Runs of layers together give every hidden state once, with the bytes of one rank") {
  const std::string name = GENERATE("gemma3-tiny", "gemma3-text-tiny", "random");
  const int num_ranks = GENERATE(1, 2, 3, 8);
  CAPTURE(name, num_ranks);
  const TestModel model = test_model(name);
  const std::vector<States> by_rank =
      encode_together(model, replica_of(model, Strategy::kLayer, num_ranks), num_ranks, load_shard);
  States together;
  std::size_t count = 0;
  for (const States& states : by_rank) {
    together.insert(states.begin(), states.end());
    count += states.size();
  }
  CHECK(count == static_cast<std::size_t>(model.config.num_layers) + 1);
  // The same products of the same numbers: no rounding differs.
  CHECK(same_bytes(together, encode_alone(model)));
}

TEST_CASE("Ranks that compute together give the same bytes every time") {
  const Strategy strategy = GENERATE(Strategy::kTensor, Strategy::kLayer);
  CAPTURE(static_cast<int>(strategy));
  const TestModel model = test_model("random");
  const Replica replica = replica_of(model, strategy, 3);
  const std::vector<States> first = encode_together(model, replica, 3, load_shard);
  for (int round = 0; round < 3; ++round) {
    const std::vector<States> again = encode_together(model, replica, 3, load_shard);
    for (std::size_t rank = 0; rank < 3; ++rank)
      CHECK(same_bytes(again[rank], first[rank]));
  }
}

TEST_CASE("A bad batch is refused by every part before any of them waits for another") {
  const Strategy strategy = GENERATE(Strategy::kTensor, Strategy::kLayer);
  CAPTURE(static_cast<int>(strategy));
  const TestModel model = test_model("random");
  const Replica replica = replica_of(model, strategy, 3);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    const std::unique_ptr<Ops> ops = make_cpu_ops(1);
    TextWeights weights =
        load_shard(model, replica.shards[static_cast<std::size_t>(bootstrap.info().rank)], *ops);
    TextWorkspace workspace(model.config, {weights.heads, weights.ffn_width}, *ops, 100);
    TextEncoder encoder(model.config, std::move(weights), workspace, *ops);
    std::unique_ptr<Collectives> group = host_transport(bootstrap).group({0, 1, 2}, kTimeout);
    const bool sliced = strategy == Strategy::kTensor;
    GroupLinks links(sliced ? std::move(group) : nullptr, nullptr, sliced ? nullptr : std::move(group),
                     bootstrap.info().rank, 3);
    CollectingSink sink(*ops);
    const std::vector<std::int32_t> ids = {2, 100'000};
    const std::vector<std::int64_t> offsets = {0, 2};
    bool refused = false;
    try {
      encoder.forward({ids, offsets}, links, sink);
    } catch (const BatchError&) {
      refused = true;
    }
    require(refused, "the batch is refused");
    require(links.time_in_links() == std::chrono::steady_clock::duration{}, "no link was used");
  });
}

}  // namespace gemmad
