// Small models and what comes out of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/model_files.h"
#include "daemon/model/text_encoder.h"
#include "kernels/cpu/cpu_ops.h"

namespace gemmad {

inline std::filesystem::path model_folder(const std::string& name) {
  return std::filesystem::path(GEMMAD_TEST_DATA) / "models" / name;
}

/// Prompts that own their ids.
struct PromptBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets = {0};

  void add(const std::vector<std::int32_t>& prompt) {
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  PackedPrompts packed() const { return {ids, offsets}; }
};

PromptBatch batch_of(const std::vector<std::vector<std::int32_t>>& prompts);

/// Keeps the hidden states that come, on the host as F32, and checks that they come in order.
class CollectingSink final : public HiddenStateSink {
 public:
  explicit CollectingSink(Ops& ops) : ops_(ops) {}
  void hidden_state(std::int64_t index, ConstTensorView x, const Moment& ready, bool is_kept) override;

  std::int64_t count() const { return static_cast<std::int64_t>(states_.size()); }
  bool in_order() const { return in_order_; }
  /// The index of the first that came.
  std::int64_t first() const { return first_; }
  bool has(std::int64_t index) const { return index >= first_ && index < first_ + count(); }
  /// Rows [begin, end) of hidden state `index`.
  ConstTensorView rows(std::int64_t index, std::int64_t begin, std::int64_t end) const;

 private:
  Ops& ops_;
  std::int64_t first_ = 0;
  std::int64_t width_ = 0;
  bool in_order_ = true;
  std::vector<std::vector<float>> states_;
};

/// An encoder of the whole model on the CPU, with what it needs.
class EncoderTesting {
 public:
  static constexpr std::int64_t kMaxTokens = 3000;

  explicit EncoderTesting(const std::filesystem::path& folder, std::int64_t padded_length = kPaddedLength,
                          int num_threads = 2);
  /// Random weights.
  explicit EncoderTesting(const TextConfig& config, std::int64_t padded_length = kPaddedLength,
                          int num_threads = 2);
  /// On another device.
  EncoderTesting(const std::filesystem::path& folder, std::unique_ptr<Ops> ops,
                 std::int64_t padded_length = kPaddedLength);

  TextEncoder& encoder() { return *encoder_; }
  Ops& ops() { return *ops_; }
  const TextWorkspace& workspace() const { return *workspace_; }
  CollectingSink encode(const PromptBatch& batch);

 private:
  void load(const WeightSource& source, const TextConfig& config, std::int64_t padded_length);

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<TextWorkspace> workspace_;
  std::unique_ptr<TextEncoder> encoder_;
};

/// A model of a few layers whose window is `window`, with both kinds of layer.
TextConfig small_config(std::int64_t window);

/// One of more heads: 4 kv heads, 8 query heads.
TextConfig many_heads_config();

/// A model and where its weights come from.
struct TestModel {
  TextConfig config;
  std::shared_ptr<const WeightSource> source;
};

/// "random" (of many_heads_config), or a folder of tests/data/models.
TestModel test_model(const std::string& name);

/// The only replica of a model that is cut over `num_ranks` ranks.
Replica replica_of(const TestModel& model, Strategy strategy, int num_ranks);

/// Seeded ids below the small models' vocabulary, BOS first.
std::vector<std::int32_t> random_prompt(std::int64_t length, std::uint64_t seed);

}  // namespace gemmad
