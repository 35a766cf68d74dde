// Small models and what comes out of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/text_encoder.h"
#include "kernels/cpu/cpu_ops.h"

namespace gemmad {

inline std::filesystem::path model_folder(const std::string& name) {
  return std::filesystem::path(GEMMAD_TEST_DATA) / "models" / name;
}

/// Prompts that own their ids.
struct Batch {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets = {0};

  void add(const std::vector<std::int32_t>& prompt) {
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  PackedPrompts packed() const { return {ids, offsets}; }
};

/// Keeps all hidden states, on the host, and checks that they come in order.
class CollectingSink final : public HiddenStateSink {
 public:
  explicit CollectingSink(Ops& ops) : ops_(ops) {}
  void hidden_state(std::int64_t index, ConstTensorView x, Stream stream) override;

  std::int64_t count() const { return static_cast<std::int64_t>(states_.size()); }
  bool in_order() const { return in_order_; }
  /// Rows [begin, end) of hidden state `index`.
  ConstTensorView rows(std::int64_t index, std::int64_t begin, std::int64_t end) const;
  void clear() { states_.clear(); }

 private:
  Ops& ops_;
  std::int64_t width_ = 0;
  bool in_order_ = true;
  std::vector<std::vector<float>> states_;
};

/// An encoder on the CPU, with its operations.
class EncoderTesting {
 public:
  static constexpr std::int64_t kMaxTokens = 3000;

  explicit EncoderTesting(const std::filesystem::path& folder, std::int64_t padded_length = kPaddedLength,
                          int num_threads = 2);
  /// Random weights.
  explicit EncoderTesting(const TextConfig& config, std::int64_t padded_length = kPaddedLength,
                          int num_threads = 2);

  TextEncoder& encoder() { return *encoder_; }
  CollectingSink encode(const Batch& batch);

 private:
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<TextEncoder> encoder_;
};

/// A model of a few layers whose window is `window`, with both kinds of layer.
TextConfig small_config(std::int64_t window);

/// Seeded ids below the small models' vocabulary, BOS first.
std::vector<std::int32_t> random_prompt(std::int64_t length, std::uint64_t seed);

}  // namespace gemmad
