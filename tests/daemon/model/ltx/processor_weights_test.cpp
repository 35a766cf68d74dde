#include "daemon/model/ltx/processor_weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <stdexcept>
#include <utility>

#include "daemon/model/ltx/processor_files.h"
#include "daemon/model/ltx/processor_tensors.h"
#include "daemon/model/ltx/processor_workspace.h"
#include "daemon/model/ltx/random_processor.h"
#include "kernels/base/float_formats.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/ltx/processor_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/limited_ops.h"

namespace gemmad {
namespace {

constexpr StateSizes kSizes{96, 9};

ProcessorFiles open(const std::string& model) {
  return ProcessorFiles::open(ltx_file(model + ".safetensors"), std::nullopt, kSizes);
}

ProcessorWeights load(const WeightSource& source, const ProcessorConfig& config, const ProcessorShare& share,
                      Ops& ops, int num_threads = 2) {
  return load_processor_weights(source, config, kSizes, share, ops, num_threads, {});
}

float element(const HostTensor& tensor, std::int64_t index) {
  const auto* const data = tensor.view.as<std::byte>();
  return tensor.view.dtype == DType::kBF16 ? bf16_to_f32(load_u16(data, index)) : load_f32(data, index);
}

/// Counts the elements that differ.
std::int64_t count_differing(ConstTensorView found,
                             const std::function<float(std::int64_t, std::int64_t)>& expected) {
  std::int64_t differing = 0;
  for (std::int64_t row = 0; row < found.shape[0]; ++row) {
    for (std::int64_t column = 0; column < found.shape[1]; ++column) {
      differing += found.as<float>()[row * found.shape[1] + column] != expected(row, column) ? 1 : 0;
    }
  }
  return differing;
}

}  // namespace

TEST_CASE("Projections are taken apart by hidden state, of any share, on any number of threads") {
  const std::string model = GENERATE("ltx-v1", "ltx-v2");
  const Range states = GENERATE(Range{0, 9}, Range{0, 1}, Range{3, 7}, Range{8, 9}, Range{4, 4});
  const int num_threads = GENERATE(1, 3, 200);
  const ProcessorFiles files = open(model);
  const auto ops = make_cpu_ops(1);
  const ProcessorWeights weights = load(files, files.config(), {states, false}, *ops, num_threads);
  REQUIRE(weights.projections.size() == files.config().num_projections());
  CHECK(weights.connectors.empty());
  for (std::size_t p = 0; p < weights.projections.size(); ++p) {
    const HostTensor whole = files.tensor(projection_name(files.config(), p, "weight"));
    CHECK(weights.projections[p].bias.data == nullptr);
    REQUIRE(static_cast<std::int64_t>(weights.projections[p].states.size()) == states.size());
    for (std::int64_t state = states.begin; state < states.end; ++state) {
      const ConstTensorView part =
          weights.projections[p].states[static_cast<std::size_t>(state - states.begin)];
      CHECK(part.shape == Shape{files.config().projection_width(p), 96});
      CHECK(count_differing(part, [&](std::int64_t c, std::int64_t d) {
              return element(whole, (c * 96 + d) * 9 + state);
            }) == 0);
    }
  }
}

TEST_CASE("A projection that does not go in one piece is whole") {
  constexpr StateSizes kLarge{1000, 9};
  ProcessorConfig config;
  config.variant = ProcessorVariant::kV2;
  config.video = {8, 128, 1};  // 18 MB of BF16
  config.audio = {1, 8, 1};
  const RandomProcessor source(config, kLarge, 3, 2);
  const auto ops = make_cpu_ops(1);
  const ProcessorWeights weights =
      load_processor_weights(source, config, kLarge, {{0, 9}, false}, *ops, 2, {});
  const HostTensor whole = source.tensor(projection_name(config, 0, "weight"));
  for (std::int64_t state = 0; state < 9; ++state) {
    CHECK(count_differing(weights.projections[0].states[static_cast<std::size_t>(state)],
                          [&](std::int64_t c, std::int64_t d) {
                            return element(whole, (c * 1000 + d) * 9 + state);
                          }) == 0);
  }
}

TEST_CASE("Queries, keys and values of a head lie together, and so do their biases") {
  const ProcessorFiles files = open("ltx-v2");
  const auto ops = make_cpu_ops(1);
  const ProcessorWeights weights = load(files, files.config(), whole_processor(kSizes), *ops);
  for (const Modality modality : kModalities) {
    const ConnectorConfig& connector = files.config().connector(modality);
    const HeadLayout heads{connector.num_heads, connector.num_heads, connector.head_dim};
    const ConnectorBlock& block = weights.connector(modality).blocks.at(1);
    const std::string prefix = block_prefix(modality, 1) + "attn1.";
    CHECK(block.qkv.shape == Shape{3 * connector.width(), connector.width()});
    CHECK(block.qkv_bias.shape == Shape{3 * connector.width()});
    for (std::int64_t head = 0; head < connector.num_heads; ++head) {
      const std::pair<const char*, std::int64_t> parts[] = {
          {"to_q", heads.q_column(head)}, {"to_k", heads.k_column(head)}, {"to_v", heads.v_column(head)}};
      for (const auto& [name, first] : parts) {
        const HostTensor weight = files.tensor(prefix + name + ".weight");
        const HostTensor bias = files.tensor(prefix + name + ".bias");
        const std::int64_t width = connector.width();
        const std::int64_t in_part = head * connector.head_dim;
        const ConstTensorView rows{
            block.qkv.as<float>() + first * width, DType::kF32, {connector.head_dim, width}};
        CHECK(count_differing(rows, [&](std::int64_t row, std::int64_t column) {
                return element(weight, (in_part + row) * width + column);
              }) == 0);
        const ConstTensorView numbers{
            block.qkv_bias.as<float>() + first, DType::kF32, {1, connector.head_dim}};
        CHECK(count_differing(numbers,
                              [&](std::int64_t, std::int64_t i) { return element(bias, in_part + i); }) == 0);
      }
    }
  }
}

TEST_CASE("The bytes of weights and workspace are known before they are there") {
  const std::string model = GENERATE("ltx-v1", "ltx-v2", "ltx-v2-no-ff-bias");
  const bool has_connectors = GENERATE(true, false);
  const ProcessorFiles files = open(model);
  MemoryLimit limit;
  const auto ops = make_limited_ops(limit);
  for (const Range states : {Range{0, 9}, Range{2, 5}, Range{3, 3}}) {
    const ProcessorShare share{states, has_connectors};
    const std::size_t before = limit.used_bytes;
    std::uint64_t last = 0;
    std::uint64_t total = 0;
    const ProcessorWeights weights =
        load_processor_weights(files, files.config(), kSizes, share, *ops, 1,
                               [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                                 CHECK(done_bytes >= last);
                                 last = done_bytes;
                                 total = total_bytes;
                               });
    const std::uint64_t expected = ProcessorWeights::size_bytes(files.config(), kSizes, share, DType::kF32);
    CHECK(weights.memory.size_bytes() == expected);
    CHECK(limit.used_bytes - before == expected);
    CHECK(last == total);
    if (expected > 0) CHECK(total == expected);
    CHECK(weights.memory.source_bytes == expected / 2);  // BF16
  }
  const ProcessorLimits limits{300, 2, 256};
  const std::size_t before = limit.used_bytes;
  const ProcessorWorkspace workspace(files.config(), kSizes, has_connectors, *ops, limits);
  CHECK(limit.used_bytes - before == workspace.size_bytes());
  CHECK(ProcessorWorkspace::size_bytes(files.config(), kSizes, has_connectors, *ops, limits) ==
        workspace.size_bytes());
}

TEST_CASE("The published processors take the bytes that they are known for") {
  const auto bytes = [](ProcessorPreset preset) {
    constexpr StateSizes kGemma{3840, 49};
    return ProcessorWeights::size_bytes(processor_preset(preset), kGemma, whole_processor(kGemma),
                                        DType::kBF16);
  };
  CHECK(bytes(ProcessorPreset::kLtx2) == 2'862'950'400);
  CHECK(bytes(ProcessorPreset::kLtx2_3) == 6'344'455'168);
}

TEST_CASE("A load that is given up leaves nothing") {
  const ProcessorFiles files = open("ltx-v2");
  MemoryLimit limit;
  const auto ops = make_limited_ops(limit);
  const auto give_up = [](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    if (done_bytes > total_bytes / 2) throw std::runtime_error("enough");
  };
  CHECK_THROWS_AS(
      load_processor_weights(files, files.config(), kSizes, whole_processor(kSizes), *ops, 1, give_up),
      std::runtime_error);
  CHECK(limit.used_bytes == 0);
  limit.most_bytes = 100'000;
  CHECK_THROWS_AS(load(files, files.config(), whole_processor(kSizes), *ops), std::bad_alloc);
  CHECK(limit.used_bytes == 0);
}

TEST_CASE("Random weights depend on seed, name and place alone") {
  const ProcessorConfig config = open("ltx-v2").config();
  const RandomProcessor source(config, kSizes, 7, 1);
  const RandomProcessor threaded(config, kSizes, 7, 8);
  const RandomProcessor other(config, kSizes, 8, 1);
  const std::string name = projection_name(config, 0, "weight");
  CHECK(compare_bits(source.tensor(name).view, threaded.tensor(name).view).ok);
  CHECK_FALSE(compare_bits(source.tensor(name).view, other.tensor(name).view).ok);
  const HostTensor whole = source.tensor(name);
  std::vector<std::byte> part(1000);
  source.read(name, 500, part);
  CHECK(std::equal(part.begin(), part.end(), whole.view.as<std::byte>() + 500));
  CHECK_THROWS_AS(source.tensor("none"), ModelFileError);
  std::uint64_t total = 0;
  for (const WeightEntry& entry : source.entries())
    total += ConstTensorView{nullptr, entry.dtype, entry.shape}.size_bytes();
  CHECK(source.size_bytes() == total);
}

TEST_CASE("Random norms are around 1, registers are as large, all else is small") {
  const ProcessorConfig config = open("ltx-v2").config();
  const RandomProcessor source(config, kSizes, 7, 1);
  const auto moments = [&](const std::string& name) {
    const HostTensor tensor = source.tensor(name);
    const std::int64_t count = tensor.view.shape.num_elements();
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      sum += element(tensor, i);
      squares += double{element(tensor, i)} * element(tensor, i);
    }
    const double mean = sum / static_cast<double>(count);
    return std::pair(mean, std::sqrt(squares / static_cast<double>(count) - mean * mean));
  };
  const auto [norm_mean, norm_deviation] = moments(block_prefix(Modality::kVideo, 0) + "attn1.q_norm.weight");
  CHECK(std::abs(norm_mean - 1) < 0.01);
  CHECK(std::abs(norm_deviation - 0.02) < 0.005);
  const auto [register_mean, register_deviation] =
      moments(connector_prefix(Modality::kVideo) + "learnable_registers");
  CHECK(std::abs(register_mean) < 0.05);
  CHECK(std::abs(register_deviation - 1) < 0.05);
  const auto [mean, deviation] = moments(projection_name(config, 0, "weight"));
  CHECK(std::abs(mean) < 0.001);
  CHECK(std::abs(deviation - 0.02) < 0.001);
}

TEST_CASE("Workspaces of bad limits are refused") {
  const ProcessorConfig config = open("ltx-v1").config();
  const auto ops = make_cpu_ops(1);
  for (const ProcessorLimits& limits : {ProcessorLimits{0, 1, 128}, ProcessorLimits{1, 0, 128},
                                        ProcessorLimits{1, 1, 0}, ProcessorLimits{1, 1, 100}}) {
    CHECK_THROWS_AS(ProcessorWorkspace(config, kSizes, true, *ops, limits), std::invalid_argument);
    CHECK_THROWS_AS(ProcessorWorkspace::size_bytes(config, kSizes, true, *ops, limits),
                    std::invalid_argument);
  }
}

}  // namespace gemmad
