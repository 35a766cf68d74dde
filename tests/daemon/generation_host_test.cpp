#include "daemon/generation_host.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/agreement.h"
#include "tests/daemon/rank_testing.h"
#include "tests/support/catch.h"
#include "tests/support/limited_ops.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

const ShardSettings kTensor{Mode::kSharded, Strategy::kTensor, 0, {}};
const ShardSettings kBatchParallel{Mode::kBatchParallel, Strategy::kTensor, 0, {}};

SequenceStart a_start(JobId id) {
  SequenceStart start;
  start.id = id;
  start.ids = {2, 5, 7, 11, 13, 17, 19};
  start.sampling.greedy = true;
  return start;
}

/// One rank with an encoder, and what continues prompts beside it.
struct HostRank {
  explicit HostRank(Bootstrap& bootstrap, const ShardSettings& settings = kTensor)
      : ops(make_limited_ops(memory)),
        rank(bootstrap, {Segments::kPerRank, 256, "gemma3-tiny", ops.get()}),
        model(rank.files().config()),
        encoder(rank.parts()),
        host({bootstrap, *ops, model, nullptr, 2, 128, TestRank::kTimeout}, encoder, std::nullopt) {
    encoder.load({rank.files().checkpoint(), nullptr}, WeightsCache::kNode, settings, [] {});
  }

  std::vector<std::int32_t> tokens_of(JobId id, std::size_t count) {
    std::vector<std::int32_t> tokens;
    GenerationOrder order{{}, {a_start(id)}};
    while (tokens.size() < count) {
      for (const SequenceNews& news : host.step(order).news)
        tokens.push_back(news.token);
      order = {};
    }
    host.step({{id}, {}});
    return tokens;
  }

  MemoryLimit memory;
  std::unique_ptr<Ops> ops;
  TestRank rank;
  TextConfig model;
  Residency encoder;
  GenerationHost host;
};

TEST_CASE("The memory of generation comes with the first sequence and goes when it is given back") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank rank(bootstrap);
    const std::size_t before = rank.memory.used_bytes;
    rank.tokens_of(1, 3);
    require(rank.memory.used_bytes == before + rank.host.size_bytes(), "as much as it says");
    require(rank.host.size_bytes() > 0, "some");
    const std::uint64_t version = rank.host.version();
    rank.host.release();
    require(rank.memory.used_bytes == before && rank.host.size_bytes() == 0, "all of it");
    require(rank.host.version() > version, "and that is told");
  });
}

TEST_CASE("Where one rank lacks memory nothing begins on any, and all say why; later it does") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank rank(bootstrap);
    const std::size_t before = rank.memory.used_bytes;
    if (bootstrap.info().rank == 1) rank.memory.most_bytes = before + 1000;
    std::string reason;
    try {
      rank.host.step({{}, {a_start(1)}});
    } catch (const StepFailed& error) {
      reason = error.what();
    }
    require(reason.find("rank 1") != std::string::npos, "the reason names the rank: " + reason);
    require(rank.memory.used_bytes == before, "nothing is kept");
    rank.memory.most_bytes = ~std::size_t{0};
    require(rank.tokens_of(2, 3).size() == 3, "later there is memory");
  });
}

TEST_CASE("A sequence wakes an encoder that sleeps, and gets the same tokens") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank rank(bootstrap);
    const auto before = rank.tokens_of(1, 5);
    rank.host.release();
    rank.encoder.sleep();
    require(rank.memory.used_bytes == 0, "asleep");
    require(rank.tokens_of(2, 5) == before, "the same tokens");
    require(!rank.encoder.asleep(), "awake");
  });
}

TEST_CASE("After another deployment sequences go on in it") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank rank(bootstrap);
    const auto before = rank.tokens_of(1, 5);
    rank.host.suspend();
    rank.encoder.deploy(kBatchParallel);
    require(rank.tokens_of(2, 5) == before, "the same tokens");
  });
}

TEST_CASE("A model of its own generates beside another encoder's, and sleeps when its memory is given back") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank alone(bootstrap);
    const auto expected = alone.tokens_of(1, 5);

    MemoryLimit memory;
    const std::unique_ptr<Ops> ops = make_limited_ops(memory);
    TestRank other(bootstrap, {Segments::kPerRank, 256, "gemma3-text-tiny", ops.get()});
    Residency encoder(other.parts());
    encoder.load({other.files().checkpoint(), nullptr}, WeightsCache::kNode, kTensor, [] {});
    const std::size_t encoder_bytes = memory.used_bytes;

    TestRank own(bootstrap, {Segments::kPerRank, 256, "gemma3-tiny", ops.get()});
    const TextConfig model = own.files().config();
    Residency residency(own.parts());
    GenerationHost host({bootstrap, *ops, model, nullptr, 2, 128, TestRank::kTimeout}, encoder,
                        SeparateModel{residency, {own.files().checkpoint(), nullptr}, WeightsCache::kNode});
    for (int round = 0; round < 2; ++round) {
      std::vector<std::int32_t> tokens;
      GenerationOrder order{{}, {a_start(9)}};
      while (tokens.size() < 5) {
        for (const SequenceNews& news : host.step(order).news)
          tokens.push_back(news.token);
        order = {};
      }
      require(tokens == expected, "its own tokens");
      host.release();
      require(memory.used_bytes == encoder_bytes, "only the encoder is left");
      if (round == 0) encoder.deploy(kBatchParallel);
      if (round == 0) encoder.deploy(kTensor);
    }
  });
}

TEST_CASE("Sequences are dealt to the replica of a rank, or to all") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    HostRank rank(bootstrap, kBatchParallel);
    require(rank.host.replicas(-1) == std::vector<std::int32_t>{0, 1}, "to all");
    require(rank.host.replicas(1) == std::vector<std::int32_t>{1}, "to that of rank 1");
    require(rank.host.replicas(7) == std::vector<std::int32_t>{0, 1},
            "a rank without one counts for nothing");
  });
}

}  // namespace
}  // namespace gemmad
