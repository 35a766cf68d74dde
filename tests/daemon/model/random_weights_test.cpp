#include "daemon/model/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "config/model_presets.h"
#include "daemon/model/tensor_names.h"
#include "daemon/model/weight_cache.h"
#include "kernels/base/float_formats.h"
#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

using Bits = std::vector<std::uint16_t>;

const std::string kName = "layers.0.mlp.up_proj.weight";

Bits values(std::uint64_t seed, const std::string& name, std::uint64_t first, std::size_t count) {
  Bits bits(count);
  RandomValues(seed, name).fill(first, bits);
  return bits;
}

/// Large enough for several threads, and of odd sizes.
TextConfig wide_config() {
  TextConfig config = small_config(16);
  config.hidden_size = 701;
  config.intermediate_size = 1009;
  config.num_layers = 1;
  config.layer_kinds.resize(1);
  return config;
}

}  // namespace

TEST_CASE("Random values are the documented ones") {
  // As scripts/random_weights.py makes them: its test holds the same numbers.
  CHECK(values(1, kName, 0, 4) == Bits{0x3ca0, 0x3c26, 0x3b6b, 0xbce4});
  CHECK(values(9007199254740991, "embed_tokens.weight", 1'000'000'000'000, 4) ==
        Bits{0x3c94, 0x3c20, 0xbcb1, 0xbc97});
}

TEST_CASE("Random values depend on seed, name and index, and not on where a range begins") {
  const Bits whole = values(7, kName, 0, 1001);
  for (const std::size_t first : {1u, 2u, 500u, 999u, 1000u}) {
    CAPTURE(first);
    CHECK(values(7, kName, first, 1001 - first) ==
          Bits(whole.begin() + static_cast<int>(first), whole.end()));
  }
  CHECK(values(7, kName, 5, 0).empty());
  CHECK(values(8, kName, 0, 1001) != whole);
  CHECK(values(7, "layers.1.mlp.up_proj.weight", 0, 1001) != whole);
}

TEST_CASE("Random values are about normally distributed with a deviation of 0.02") {
  constexpr std::size_t kCount = 1'000'000;
  double sum = 0;
  double squares = 0;
  double largest = 0;
  std::size_t within_deviation = 0;
  for (const std::uint16_t bits : values(1, kName, 0, kCount)) {
    const double value = static_cast<double>(bf16_to_f32(bits));
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
    if (std::abs(value) < 0.02) ++within_deviation;
  }
  // Six times the deviation of a mean, and of a deviation, of so many.
  CHECK(std::abs(sum / kCount) < 6 * 0.02 / 1000);
  CHECK(std::abs(std::sqrt(squares / kCount) - 0.02) < 6 * 0.02 / 1400);
  CHECK(largest < 0.07);
  CHECK(largest > 0.06);
  CHECK(std::abs(static_cast<double>(within_deviation) / kCount - 0.68) < 0.02);
}

TEST_CASE("Any number of threads makes the same tensors, of the model's shapes") {
  const TextConfig config = wide_config();
  const RandomWeights one(config, 3, 1);
  for (const int threads : {2, 3, 16}) {
    const RandomWeights many(config, 3, threads);
    std::uint64_t total_bytes = 0;
    for (const ExpectedTensor& expected : expected_tensors(config)) {
      CAPTURE(threads, expected.name);
      const HostTensor tensor = many.tensor(expected.name);
      CHECK(tensor.view.dtype == DType::kBF16);
      CHECK(tensor.view.shape == expected.shape);
      CHECK(compare_bits(tensor.view, one.tensor(expected.name).view).ok);
      total_bytes += tensor.view.size_bytes();
    }
    CHECK(many.size_bytes() == total_bytes);
  }
}

TEST_CASE("Projections and the table are RandomValues, norms are zeros") {
  const RandomWeights weights(wide_config(), 3, 2);
  const HostTensor up = weights.tensor(kName);
  const auto size = static_cast<std::size_t>(up.view.shape.num_elements());
  CHECK(std::memcmp(up.view.data, values(3, kName, 0, size).data(), up.view.size_bytes()) == 0);
  const HostTensor norm = weights.tensor("layers.0.self_attn.k_norm.weight");
  CHECK(std::all_of(norm.view.as<std::uint16_t>(),
                    norm.view.as<std::uint16_t>() + norm.view.shape.num_elements(),
                    [](std::uint16_t bits) { return bits == 0; }));
}

TEST_CASE("A part that is read is that part of the tensor") {
  const RandomWeights weights(wide_config(), 3, 4);
  const HostTensor tensor = weights.tensor(kName);
  const std::uint64_t size_bytes = tensor.view.size_bytes();
  for (const auto& [offset, count] : {std::pair<std::uint64_t, std::uint64_t>{0, 2},
                                      {2, size_bytes - 2},
                                      {size_bytes - 6, 6},
                                      {4096, 1 << 20}}) {
    CAPTURE(offset, count);
    Bits part(count / 2);
    weights.read(kName, offset, std::as_writable_bytes(std::span(part)));
    CHECK(std::memcmp(part.data(), tensor.view.as<std::byte>() + offset, count) == 0);
  }
}

TEST_CASE("A cache filled in parts holds the random weights") {
  const TextConfig config = wide_config();
  const RandomWeights weights(config, 3, 2);
  WeightCache cache = WeightCache::create(weights);
  std::uint64_t copied_bytes = 0;
  for (int part = 0; part < 3; ++part)
    copied_bytes += WeightCache::attach(weights, cache.address()).fill(weights, part, 3, {});
  cache.seal();
  CHECK(copied_bytes == weights.size_bytes());
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    CAPTURE(expected.name);
    CHECK(compare_bits(cache.tensor(expected.name).view, weights.tensor(expected.name).view).ok);
  }
}

TEST_CASE("A tensor that the model has not is refused") {
  const RandomWeights weights(small_config(16), 1, 1);
  CHECK_THROWS_AS(weights.tensor("no such"), ModelFileError);
  CHECK_THROWS_AS(weights.read("no such", 0, {}), ModelFileError);
}

TEST_CASE("The presets have as many weights as the published models") {
  const auto elements = [](Preset preset) {
    return RandomWeights(preset_config(preset), 1, 1).size_bytes() / sizeof(std::uint16_t);
  };
  CHECK(elements(Preset::kGemma3_270m) == 268'098'176);
  CHECK(elements(Preset::kGemma3_1b) == 999'885'952);
  CHECK(elements(Preset::kGemma3_4b) == 3'880'263'168);
  CHECK(elements(Preset::kGemma3_12b) == 11'766'034'176);
  CHECK(elements(Preset::kGemma3_27b) == 27'009'346'304);
}

}  // namespace gemmad
