// What a shard loads, against the whole model's weights and against the plan's own figures.
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/text_weights.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

/// The values of matrices on top of each other, row after row.
std::vector<float> values(const std::vector<ConstMatrixView>& stack) {
  std::vector<float> all;
  for (const ConstMatrixView& matrix : stack) {
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      const float* begin = matrix.as<float>() + row * matrix.row_stride;
      all.insert(all.end(), begin, begin + matrix.columns);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("A slice of the whole model is what its shard loads by itself") {
  const std::string name = GENERATE("gemma3-tiny", "gemma3-text-tiny", "random");
  const int num_ranks = GENERATE(1, 2, 3, 4, 5, 8);
  CAPTURE(name, num_ranks);
  const TestModel model = test_model(name);
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const TextWeights whole =
      load_text_weights(*model.source, model.config, whole_model(model.config, 0), *ops, {});
  for (const Shard& shard : replica_of(model, Strategy::kTensor, num_ranks).shards) {
    CAPTURE(shard.rank);
    const TextWeights loaded = load_text_weights(*model.source, model.config, shard, *ops, {});
    const TextWeights slice = slice_of(whole, model.config, shard);
    REQUIRE(slice.layers.size() == loaded.layers.size());
    CHECK(slice.heads.num_heads == loaded.heads.num_heads);
    CHECK(slice.heads.num_kv_heads == loaded.heads.num_kv_heads);
    CHECK(slice.ffn_width == loaded.ffn_width);
    for (std::size_t layer = 0; layer < slice.layers.size(); ++layer) {
      const LayerWeights& a = slice.layers[layer];
      const LayerWeights& b = loaded.layers[layer];
      CHECK((values(a.qkv) == values(b.qkv)));
      CHECK((values({a.o}) == values({b.o})));
      CHECK((values({a.gate_up}) == values({b.gate_up})));
      CHECK((values({a.down}) == values({b.down})));
    }
  }
}

TEST_CASE("A slice takes no memory of its own") {
  const TestModel model = test_model("gemma3-tiny");
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const TextWeights whole =
      load_text_weights(*model.source, model.config, whole_model(model.config, 0), *ops, {});
  const Shard shard = replica_of(model, Strategy::kTensor, 3).shards.at(1);
  CHECK(slice_of(whole, model.config, shard).memory.buffers == whole.memory.buffers);
  CHECK(first_layers(whole, 2).memory.buffers == whole.memory.buffers);
}

TEST_CASE("A shard allocates just the elements that shard_size tells") {
  const std::string name = GENERATE("gemma3-tiny", "gemma3-text-tiny", "random");
  const Strategy strategy = GENERATE(Strategy::kTensor, Strategy::kLayer);
  const int num_ranks = GENERATE(1, 2, 3, 4, 5, 8, 16);
  CAPTURE(name, static_cast<int>(strategy), num_ranks);
  const TestModel model = test_model(name);
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  for (const Shard& shard : replica_of(model, strategy, num_ranks).shards) {
    CAPTURE(shard.rank);
    const TextWeights weights = load_text_weights(*model.source, model.config, shard, *ops, {});
    CHECK(weights.size_bytes() ==
          static_cast<std::uint64_t>(shard_size(model.config, shard).elements) * sizeof(float));
  }
}

TEST_CASE("Stages hold their own layers, the first one the table, the last one the last norm") {
  const TestModel model = test_model("gemma3-tiny");
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const Replica replica = replica_of(model, Strategy::kLayer, 3);
  REQUIRE(replica.shards.size() == 3);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    CAPTURE(stage);
    const TextWeights weights =
        load_text_weights(*model.source, model.config, replica.shards[stage], *ops, {});
    CHECK(weights.layer_range == replica.shards[stage].layers);
    CHECK(static_cast<std::int64_t>(weights.layers.size()) == replica.shards[stage].layers.size());
    CHECK((weights.embedding != nullptr) == (stage == 0));
    CHECK((weights.final_norm.data != nullptr) == (stage == 2));
  }
}

TEST_CASE("Stages together take the whole model from its source, each byte once") {
  const TestModel model = test_model("gemma3-text-tiny");
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  std::uint64_t source_bytes = 0;
  for (const Shard& shard : replica_of(model, Strategy::kLayer, 3).shards)
    source_bytes += load_text_weights(*model.source, model.config, shard, *ops, {}).memory.source_bytes;
  CHECK(source_bytes == model.source->size_bytes());
}

TEST_CASE("The first layers are the first layers, all of them when more are asked for") {
  const TestModel model = test_model("random");
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const TextWeights whole =
      load_text_weights(*model.source, model.config, whole_model(model.config, 0), *ops, {});
  const TextWeights two = first_layers(whole, 2);
  CHECK(two.layer_range == Range{0, 2});
  REQUIRE(two.layers.size() == 2);
  CHECK(two.layers[1].o.data == whole.layers[1].o.data);
  CHECK(first_layers(whole, 99).layers.size() == whole.layers.size());
}

}  // namespace gemmad
