#include "comm/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

TextConfig model_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn, std::int64_t layers) {
  TextConfig model{};
  model.hidden_size = 96;
  model.head_dim = 16;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.intermediate_size = ffn;
  model.num_layers = layers;
  return model;
}

ShardPlan plan_of(const TextConfig& model, Mode mode, Strategy strategy, std::int64_t ranks_per_replica,
                  int num_ranks, std::vector<std::int64_t> encoder_ranks = {}) {
  return make_shard_plan(model, {mode, strategy, ranks_per_replica, std::move(encoder_ranks)}, num_ranks);
}

Replica sharded(const TextConfig& model, Strategy strategy, int num_ranks) {
  const ShardPlan plan = plan_of(model, Mode::kSharded, strategy, 0, num_ranks);
  REQUIRE(plan.replicas.size() == 1);
  return plan.replicas.front();
}

std::string refusal(const TextConfig& model, const ShardSettings& settings, int num_ranks) {
  try {
    make_shard_plan(model, settings, num_ranks);
  } catch (const ShardError& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<int> ranks_of(const Replica& replica) {
  std::vector<int> ranks;
  for (const Shard& shard : replica.shards)
    ranks.push_back(shard.rank);
  return ranks;
}

/// How many of `shards` hold each of `count` things of which `range_of` gives a range.
template <typename RangeOf>
std::vector<int> holders(const std::vector<Shard>& shards, std::int64_t count, const RangeOf& range_of) {
  std::vector<int> num(static_cast<std::size_t>(count), 0);
  for (const Shard& shard : shards) {
    const Range range = range_of(shard);
    for (std::int64_t i = range.begin; i < range.end; ++i)
      ++num.at(static_cast<std::size_t>(i));
  }
  return num;
}

/// A model and a number of ranks that tensor shards can have.
struct Case {
  TextConfig model;
  int num_ranks;
};

/// Gemma's sizes, awkward ones, and seeded ones; with as many ranks as do and as may be asked for.
std::vector<Case> tensor_cases() {
  std::vector<Case> cases;
  const auto add = [&](const TextConfig& model, int num_ranks) {
    if (num_ranks <= model.intermediate_size / ffn_block(model)) cases.push_back({model, num_ranks});
  };
  for (int ranks = 1; ranks <= 33; ++ranks) {
    add(model_of(4, 1, 192, 8), ranks);
    add(model_of(4, 2, 192, 8), ranks);
    add(model_of(8, 4, 80, 3), ranks);
    add(model_of(16, 8, 15360, 48), ranks);
    add(model_of(32, 16, 21504, 62), ranks);
    add(model_of(12, 3, 7, 1), ranks);
    add(model_of(1, 1, 1, 1), ranks);
  }
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const auto kv_heads = static_cast<std::int64_t>(1 + random() % 9);
    const auto heads = kv_heads * static_cast<std::int64_t>(1 + random() % 7);
    const auto ffn = static_cast<std::int64_t>(1 + random() % 3000);
    add(model_of(heads, kv_heads, ffn, 5), static_cast<int>(1 + random() % 40));
  }
  return cases;
}

/// Runs `check` on the shards of every case.
template <typename Check>
void for_each_tensor_plan(const Check& check) {
  for (const Case& each : tensor_cases()) {
    const TextConfig& model = each.model;
    CAPTURE(model.num_heads, model.num_kv_heads, model.intermediate_size, each.num_ranks);
    const Replica replica = sharded(model, Strategy::kTensor, each.num_ranks);
    REQUIRE(replica.strategy == Strategy::kTensor);
    REQUIRE(replica.shards.size() == static_cast<std::size_t>(each.num_ranks));
    check(model, replica.shards);
  }
}

}  // namespace

TEST_CASE("Every query head is on exactly one tensor shard") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    const auto num = holders(shards, model.num_heads, [](const Shard& shard) { return shard.heads; });
    CHECK(std::all_of(num.begin(), num.end(), [](int n) { return n == 1; }));
  });
}

TEST_CASE("A tensor shard has just the kv heads that its query heads read") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    const std::int64_t queries = model.num_heads / model.num_kv_heads;
    for (const Shard& shard : shards) {
      if (shard.heads.empty()) {
        CHECK(shard.kv_heads.empty());
        continue;
      }
      CHECK(shard.kv_heads.begin == shard.heads.begin / queries);
      CHECK(shard.kv_heads.end == (shard.heads.end - 1) / queries + 1);
    }
  });
}

TEST_CASE("Every kv head of a tensor shard has as many of its query heads") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    const std::int64_t queries = model.num_heads / model.num_kv_heads;
    for (const Shard& shard : shards) {
      for (std::int64_t kv_head = shard.kv_heads.begin; kv_head < shard.kv_heads.end; ++kv_head) {
        const std::int64_t begin = std::max(shard.heads.begin, kv_head * queries);
        const std::int64_t end = std::min(shard.heads.end, (kv_head + 1) * queries);
        CHECK((end - begin) * shard.kv_heads.size() == shard.heads.size());
      }
    }
  });
}

TEST_CASE("Feed-forward blocks are on one tensor shard each, in runs that differ by one at most") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    const std::int64_t num_blocks = model.intermediate_size / ffn_block(model);
    const auto num = holders(shards, num_blocks, [](const Shard& shard) { return shard.ffn_blocks; });
    CHECK(std::all_of(num.begin(), num.end(), [](int n) { return n == 1; }));
    for (const Shard& shard : shards) {
      CHECK(shard.ffn_blocks.size() >= num_blocks / static_cast<std::int64_t>(shards.size()));
      CHECK(shard.ffn_blocks.size() <= num_blocks / static_cast<std::int64_t>(shards.size()) + 1);
    }
  });
}

TEST_CASE("Every tensor shard has a part of all layers") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    for (const Shard& shard : shards)
      CHECK(shard.layers == Range{0, model.num_layers});
  });
}

TEST_CASE("Tensor shards differ by one kv head at most, or where those are shared, by one query head") {
  for_each_tensor_plan([](const TextConfig& model, const std::vector<Shard>& shards) {
    const auto num_ranks = static_cast<std::int64_t>(shards.size());
    const bool shared = num_ranks > model.num_kv_heads;
    const std::int64_t queries = model.num_heads / model.num_kv_heads;
    std::vector<std::int64_t> sizes;
    for (const Shard& shard : shards)
      sizes.push_back(shard.heads.size());
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    if (!shared) {
      CHECK(*most - *least <= queries);
      return;
    }
    // The ranks of one kv head number floor or ceil of ranks / K.
    const std::int64_t with_heads = std::min(num_ranks, model.num_heads);
    const std::int64_t fewest_sharers = with_heads / model.num_kv_heads;
    CHECK(*most == (queries + fewest_sharers - 1) / fewest_sharers);
  });
}

TEST_CASE("More ranks than kv heads hold kv heads together") {
  const std::vector<Shard> shards = sharded(model_of(4, 1, 192, 8), Strategy::kTensor, 3).shards;
  CHECK(shards[0].heads == Range{0, 2});
  CHECK(shards[1].heads == Range{2, 3});
  CHECK(shards[2].heads == Range{3, 4});
  for (const Shard& shard : shards)
    CHECK(shard.kv_heads == Range{0, 1});
}

TEST_CASE("Ranks beyond the query heads hold feed-forward blocks alone") {
  const std::vector<Shard> shards = sharded(model_of(4, 2, 192, 8), Strategy::kTensor, 6).shards;
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CAPTURE(rank);
    CHECK(shards[rank].heads.empty() == (rank >= 4));
    CHECK(shards[rank].kv_heads.empty() == (rank >= 4));
    CHECK(shards[rank].ffn_blocks.size() == 16);
  }
}

TEST_CASE("A block of feed-forward columns is a power of two that divides them into 64 blocks or more") {
  const auto block_of = [](std::int64_t ffn) { return ffn_block(model_of(1, 1, ffn, 1)); };
  CHECK(block_of(1) == 1);
  CHECK(block_of(80) == 1);
  CHECK(block_of(127) == 1);
  CHECK(block_of(128) == 2);
  CHECK(block_of(192) == 2);
  CHECK(block_of(2048) == 32);
  CHECK(block_of(4096) == 64);
  CHECK(block_of(15360) == 64);
  CHECK(block_of(15360 + 32) == 32);
  CHECK(block_of(100'000'001) == 1);
}

TEST_CASE("Runs of layers follow each other and differ by one layer at most") {
  for (const std::int64_t layers : {1, 3, 8, 18, 26, 48, 62}) {
    for (int num_ranks = 1; num_ranks <= 20; ++num_ranks) {
      CAPTURE(layers, num_ranks);
      const TextConfig model = model_of(4, 2, 192, layers);
      const Replica replica = sharded(model, Strategy::kLayer, num_ranks);
      CHECK(replica.strategy == Strategy::kLayer);
      std::int64_t next = 0;
      for (const Shard& shard : replica.shards) {
        CHECK(shard.layers.begin == next);
        next = shard.layers.end;
        CHECK(shard.layers.size() >= layers / num_ranks);
        CHECK(shard.layers.size() <= layers / num_ranks + 1);
        CHECK_FALSE(shard.layers.empty());
      }
      CHECK(next == layers);
    }
  }
}

TEST_CASE("Stages hold their layers whole") {
  const TextConfig model = model_of(4, 2, 192, 8);
  for (const Shard& shard : sharded(model, Strategy::kLayer, 3).shards) {
    Shard whole = whole_model(model, shard.rank);
    whole.layers = shard.layers;
    CHECK(shard == whole);
  }
}

TEST_CASE("Ranks beyond the layers hold nothing") {
  const ShardPlan plan = plan_of(model_of(4, 2, 192, 3), Mode::kSharded, Strategy::kLayer, 0, 5);
  CHECK(ranks_of(plan.replicas.front()) == std::vector<int>{0, 1, 2});
  REQUIRE(plan.shard_of(2) != nullptr);
  CHECK(plan.shard_of(2)->rank == 2);
  CHECK(plan.shard_of(3) == nullptr);
  CHECK(plan.shard_of(4) == nullptr);
}

TEST_CASE("Groups of ranks are replicas of their own") {
  const auto strategy = GENERATE(Strategy::kTensor, Strategy::kLayer);
  const ShardPlan plan = plan_of(model_of(4, 2, 192, 8), Mode::kSharded, strategy, 2, 6);
  REQUIRE(plan.replicas.size() == 3);
  for (int replica = 0; replica < 3; ++replica) {
    const Replica& each = plan.replicas[static_cast<std::size_t>(replica)];
    CHECK(each.strategy == strategy);
    CHECK(ranks_of(each) == std::vector<int>{2 * replica, 2 * replica + 1});
    CHECK(each.shards[0].heads == plan.replicas[0].shards[0].heads);
    CHECK(each.shards[1].layers == plan.replicas[0].shards[1].layers);
  }
  CHECK_FALSE(plan.split.has_value());
}

TEST_CASE("Batch parallel gives every rank the whole model, whatever a replica's size would be") {
  const TextConfig model = model_of(4, 2, 192, 8);
  const ShardPlan plan = plan_of(model, Mode::kBatchParallel, Strategy::kLayer, 3, 4);
  REQUIRE(plan.replicas.size() == 4);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(plan.replicas[static_cast<std::size_t>(rank)].shards ==
          std::vector<Shard>{whole_model(model, rank)});
  CHECK_FALSE(plan.split.has_value());
}

TEST_CASE("Adaptive gives every rank the whole model, and splits it over all as tensor does") {
  const TextConfig model = model_of(4, 2, 192, 8);
  const ShardPlan plan = plan_of(model, Mode::kAdaptive, Strategy::kTensor, 0, 4);
  REQUIRE(plan.replicas.size() == 4);
  CHECK(plan.replicas[2].shards == std::vector<Shard>{whole_model(model, 2)});
  REQUIRE(plan.split.has_value());
  CHECK(plan.split->shards == sharded(model, Strategy::kTensor, 4).shards);
}

TEST_CASE("Adaptive on one encoder has nothing to split") {
  const TextConfig model = model_of(4, 2, 192, 8);
  CHECK_FALSE(plan_of(model, Mode::kAdaptive, Strategy::kTensor, 0, 1).split.has_value());
  CHECK_FALSE(plan_of(model, Mode::kAdaptive, Strategy::kTensor, 0, 4, {2}).split.has_value());
}

TEST_CASE("replicas_of gives the replicas that work by a cut") {
  const TextConfig model = model_of(4, 2, 192, 8);
  const ShardPlan adaptive = plan_of(model, Mode::kAdaptive, Strategy::kTensor, 0, 3);
  CHECK(adaptive.replicas_of(Cut::kDeal).size() == 3);
  REQUIRE(adaptive.replicas_of(Cut::kSplit).size() == 1);
  CHECK(adaptive.replicas_of(Cut::kSplit)[0].shards.size() == 3);
  CHECK(plan_of(model, Mode::kSharded, Strategy::kTensor, 0, 3).replicas_of(Cut::kSplit).empty());
}

TEST_CASE("Only the ranks that are to encode hold the model, in rising order") {
  const TextConfig model = model_of(4, 2, 192, 8);
  const ShardPlan tensor = plan_of(model, Mode::kSharded, Strategy::kTensor, 0, 8, {6, 1});
  REQUIRE(tensor.replicas.size() == 1);
  CHECK(ranks_of(tensor.replicas[0]) == std::vector<int>{1, 6});
  for (int rank = 0; rank < 8; ++rank)
    CHECK((tensor.shard_of(rank) != nullptr) == (rank == 1 || rank == 6));

  const ShardPlan dealt = plan_of(model, Mode::kBatchParallel, Strategy::kTensor, 0, 8, {6, 1});
  REQUIRE(dealt.replicas.size() == 2);
  CHECK(ranks_of(dealt.replicas[1]) == std::vector<int>{6});

  const ShardPlan hybrid = plan_of(model, Mode::kSharded, Strategy::kLayer, 2, 8, {0, 3, 4, 7});
  REQUIRE(hybrid.replicas.size() == 2);
  CHECK(ranks_of(hybrid.replicas[1]) == std::vector<int>{4, 7});
}

TEST_CASE("What cannot be is refused with its numbers") {
  const TextConfig model = model_of(4, 2, 192, 8);
  const auto says = [&](const ShardSettings& settings, int num_ranks, const char* text) {
    const std::string message = refusal(model, settings, num_ranks);
    INFO(message);
    CHECK(message.find(text) != std::string::npos);
  };
  says({Mode::kBatchParallel, {}, 0, {0, 4}}, 4, "names rank 4; there are ranks 0 to 3");
  says({Mode::kBatchParallel, {}, 0, {-1}}, 4, "names rank -1");
  says({Mode::kSharded, {}, 0, {2, 1, 2}}, 4, "names rank 2 twice");
  says({Mode::kSharded, Strategy::kTensor, 3, {}}, 8, "ranks_per_replica is 3, which does not divide the 8");
  says({Mode::kSharded, Strategy::kLayer, 3, {0, 1}}, 8,
       "ranks_per_replica is 3, which does not divide the 2");
  says({Mode::kSharded, Strategy::kTensor, 0, {}}, 97,
       "over 97 ranks: the model has 96 feed-forward blocks of 2");
  says({Mode::kAdaptive, Strategy::kTensor, 0, {}}, 97, "over 97 ranks");
  says({Mode::kSharded, Strategy::kTensor, 0, {}}, 96, "accepted");
  says({Mode::kSharded, Strategy::kLayer, 0, {}}, 97, "accepted");
  says({Mode::kSharded, Strategy::kTensor, 8, {}}, 16, "accepted");
}

TEST_CASE("The config's keys of the layout are the plan's settings") {
  DaemonConfig config;
  config.mode = Mode::kSharded;
  config.strategy = Strategy::kLayer;
  config.ranks_per_replica = 2;
  config.encoder_ranks = {1, 2};
  CHECK(shard_settings(config) == ShardSettings{Mode::kSharded, Strategy::kLayer, 2, {1, 2}});
}

}  // namespace gemmad
