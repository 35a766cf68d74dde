// A text model that continues sequences alone, without a daemon around it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/model/generation/kv_cache.h"
#include "daemon/model/generation/text_decoder.h"
#include "daemon/model/generation/text_head.h"
#include "kernels/base/float_formats.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/daemon/model/model_testing.h"

namespace gemmad {

class DecoderTesting {
 public:
  /// Of a folder of tests/data/models.
  explicit DecoderTesting(const std::string& model, std::int64_t num_slots = 1, std::int64_t chunk_rows = 16,
                          std::int64_t context = 256)
      : DecoderTesting(model, make_cpu_ops(2), num_slots, chunk_rows, context) {}
  DecoderTesting(const std::string& model, std::unique_ptr<Ops> ops, std::int64_t num_slots,
                 std::int64_t chunk_rows, std::int64_t context)
      : ops_(std::move(ops)), model_(test_model(model)), chunk_rows_(chunk_rows) {
    TextWeights weights =
        load_text_weights(*model_.source, model_.config, whole_model(model_.config, 0), *ops_, {});
    workspace_.emplace(model_.config, ActivationWidths{weights.heads, weights.ffn_width}, *ops_, 128);
    cache_.emplace(model_.config, weights.layer_range, weights.heads, *ops_,
                   KvCacheLimits{num_slots, context, chunk_rows});
    head_.emplace(model_.config, weights, TextHead::Place{}, num_slots, *ops_);
    decoder_.emplace(model_.config, std::move(weights), *workspace_, *cache_, *ops_);
  }

  /// Puts ids at positions from `begin` on into the cache.
  void prefill(std::int32_t slot, std::span<const std::int32_t> ids, std::int32_t begin = 0) {
    for (std::size_t first = 0; first < ids.size(); first += static_cast<std::size_t>(chunk_rows_)) {
      std::vector<CachedRow> rows;
      for (std::size_t i = first; i < std::min(ids.size(), first + static_cast<std::size_t>(chunk_rows_));
           ++i) {
        const std::int32_t position = begin + static_cast<std::int32_t>(i);
        rows.push_back({ids[i], slot, position, position + 1});
      }
      decoder_->prefill(rows, std::nullopt, links_);
    }
  }
  /// The logits that follow each of `rows`, as floats.
  std::vector<std::vector<float>> decode(const std::vector<CachedRow>& rows) {
    const ConstTensorView last = decoder_->decode(rows, links_);
    head_->run(last, static_cast<std::int64_t>(rows.size()), links_);
    std::vector<std::vector<float>> logits;
    for (std::size_t row = 0; row < rows.size(); ++row)
      logits.push_back(floats(head_->logits(static_cast<std::int64_t>(row))));
    return logits;
  }

  TextDecoder& decoder() { return *decoder_; }
  Ops& ops() { return *ops_; }
  const TextConfig& config() const { return model_.config; }

 private:
  static std::vector<float> floats(ConstTensorView values) {
    std::vector<float> all(static_cast<std::size_t>(values.shape[0]));
    for (std::int64_t i = 0; i < values.shape[0]; ++i) {
      all[static_cast<std::size_t>(i)] = values.dtype == DType::kBF16
                                             ? bf16_to_f32(load_u16(values.as<std::byte>(), i))
                                             : values.as<float>()[i];
    }
    return all;
  }

  std::unique_ptr<Ops> ops_;
  TestModel model_;
  std::int64_t chunk_rows_;
  NoLinks links_;
  std::optional<TextWorkspace> workspace_;
  std::optional<KvCache> cache_;
  std::optional<TextHead> head_;
  std::optional<TextDecoder> decoder_;
};

/// The id of the largest logit.
inline std::int32_t greedy(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace gemmad
