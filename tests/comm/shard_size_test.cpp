// How much of the model a shard holds, and which shards hold a hidden state.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/shard_plan.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

TextConfig gemma_12b() {
  TextConfig model{};
  model.hidden_size = 3840;
  model.head_dim = 256;
  model.num_heads = 16;
  model.num_kv_heads = 8;
  model.intermediate_size = 15360;
  model.num_layers = 48;
  return model;
}

TextConfig gemma_270m() {
  TextConfig model{};
  model.hidden_size = 640;
  model.head_dim = 256;
  model.num_heads = 4;
  model.num_kv_heads = 1;
  model.intermediate_size = 2048;
  model.num_layers = 18;
  return model;
}

Replica sharded(const TextConfig& model, Strategy strategy, int num_ranks) {
  return make_shard_plan(model, {Mode::kSharded, strategy, 0, {}}, num_ranks).replicas.at(0);
}

std::int64_t norm_elements(const TextConfig& model) {
  return model.num_layers * (4 * model.hidden_size + 2 * model.head_dim) + model.hidden_size;
}

/// Keys and values of one kv head in all layers.
std::int64_t kv_head_elements(const TextConfig& model) {
  return model.num_layers * 2 * model.head_dim * model.hidden_size;
}

std::int64_t whole_elements(const TextConfig& model) {
  return shard_size(model, whole_model(model, 0)).elements;
}

}  // namespace

TEST_CASE("The whole model has the elements of all its tensors but the table") {
  // q, k, v, o: 3840 x (4096 + 2048 + 2048 + 4096); gate, up, down: 3 x 3840 x 15360; norms 4 x 3840 + 2 x
  // 256.
  constexpr std::int64_t k12b = 48;
  constexpr std::int64_t k270m = 18;
  CHECK(whole_elements(gemma_12b()) == k12b * (3840 * 12288 + 3 * 3840 * 15360 + 4 * 3840 + 512) + 3840);
  CHECK(whole_elements(gemma_270m()) == k270m * (640 * 2560 + 3 * 640 * 2048 + 4 * 640 + 512) + 640);
}

TEST_CASE("Tensor shards without their replicated parts, and those once, are the whole model") {
  for (const TextConfig& model : {gemma_12b(), gemma_270m()}) {
    for (const int num_ranks : {1, 2, 3, 4, 5, 7, 8, 16, 20, 31}) {
      CAPTURE(model.num_heads, num_ranks);
      std::int64_t sum = norm_elements(model);
      std::vector<int> num_holders(static_cast<std::size_t>(model.num_kv_heads), 0);
      for (const Shard& shard : sharded(model, Strategy::kTensor, num_ranks).shards) {
        const ShardSize size = shard_size(model, shard);
        sum += size.elements - size.replicated;
        for (std::int64_t kv_head = shard.kv_heads.begin; kv_head < shard.kv_heads.end; ++kv_head)
          ++num_holders[static_cast<std::size_t>(kv_head)];
      }
      for (const int num : num_holders)
        sum += num > 1 ? kv_head_elements(model) : 0;
      CHECK(sum == whole_elements(model));
    }
  }
}

TEST_CASE("What shards hold again is the norms, and kv heads that several hold") {
  const TextConfig model = gemma_270m();
  for (const Shard& shard : sharded(model, Strategy::kTensor, 2).shards)
    CHECK(shard_size(model, shard).replicated == norm_elements(model) + kv_head_elements(model));
  const TextConfig large = gemma_12b();
  for (const Shard& shard : sharded(large, Strategy::kTensor, 8).shards)
    CHECK(shard_size(large, shard).replicated == norm_elements(large));
}

TEST_CASE("A shard without heads holds norms and feed-forward blocks alone") {
  const TextConfig model = gemma_270m();
  const Shard last = sharded(model, Strategy::kTensor, 8).shards.back();
  REQUIRE(last.heads.empty());
  CHECK(shard_size(model, last).replicated == norm_elements(model));
  CHECK(shard_size(model, last).elements == norm_elements(model) + 18 * 3 * 640 * 2048 / 8);
}

TEST_CASE("Two equal tensor shards hold half of the model each, but for what both hold") {
  const TextConfig model = gemma_12b();
  for (const Shard& shard : sharded(model, Strategy::kTensor, 2).shards) {
    CHECK(2 * (shard_size(model, shard).elements - norm_elements(model)) ==
          whole_elements(model) - norm_elements(model));
  }
}

TEST_CASE("Runs of layers sum to the whole model") {
  const TextConfig model = gemma_12b();
  for (const int num_ranks : {1, 2, 3, 5, 8, 48, 50}) {
    CAPTURE(num_ranks);
    std::int64_t sum = 0;
    for (const Shard& shard : sharded(model, Strategy::kLayer, num_ranks).shards)
      sum += shard_size(model, shard).elements;
    CHECK(sum == whole_elements(model));
  }
}

TEST_CASE("All tensor shards hold every hidden state") {
  const Replica replica = sharded(gemma_270m(), Strategy::kTensor, 3);
  for (std::int64_t state = 0; state <= 18; ++state)
    CHECK(holders_of_state(replica, state) == std::vector<int>{0, 1, 2});
}

TEST_CASE(
    "A hidden state is with the stage whose layer it comes out of, the first one with the first stage") {
  const Replica replica = sharded(gemma_270m(), Strategy::kLayer, 4);  // 5, 5, 4, 4 layers
  CHECK(holders_of_state(replica, 0) == std::vector<int>{0});
  CHECK(holders_of_state(replica, 5) == std::vector<int>{0});
  CHECK(holders_of_state(replica, 6) == std::vector<int>{1});
  CHECK(holders_of_state(replica, 14) == std::vector<int>{2});
  CHECK(holders_of_state(replica, 15) == std::vector<int>{3});
  CHECK(holders_of_state(replica, 18) == std::vector<int>{3});
}

}  // namespace gemmad
